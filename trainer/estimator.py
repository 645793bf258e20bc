"""TPUEstimator: checks what it is asked for, then lets the mode's own file do it."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve import devices
from tpuserve.errors import InvalidSetting, TpuNotFound
from trainer import counts, evaluate, export, predict, train
from trainer.config import RunConfig
from trainer.program import Program
from trainer.receivers import ServingInputReceiver
from trainer.spec import ModeKeys


class TPUEstimator:
    """Trains, evaluates, predicts with and exports the model that a model_fn builds.

    Example:
      estimator = TPUEstimator(model_fn, config=RunConfig(model_dir="/tmp/digits"),
                               use_tpu=False, train_batch_size=64)
      estimator.train(input_fn, max_steps=1000)
      estimator.export_saved_model("/tmp/export", serving_input_receiver_fn)

    Attributes:
      config, params, model_dir, model_fn: as given to the constructor.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Mapping[str, Any] | None = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        *,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
    ) -> None:
        """Sets the estimator up; nothing runs yet.

        Args:
          model_fn: takes features, labels, mode, params and config, those of them it names, and
            returns a TPUEstimatorSpec.
          model_dir: where checkpoints and summaries go; by default the config's, else a new
            temporary directory.
          config: how to run; cannot be None.
          params: hyperparameters for model_fn and input_fn; "batch_size" and "context" are
            reserved.
          use_tpu: run on a TPU. False runs on the CPU.
          train_batch_size, eval_batch_size, predict_batch_size: global batch sizes, in rows,
            which functions find in params["batch_size"].
          export_to_tpu, export_to_cpu: which metagraphs an export holds.

        Raises:
          InvalidSetting: an argument is missing, impossible, or contradicts another.
        """
        if not isinstance(config, RunConfig):
            raise InvalidSetting(f"config is {config!r}. Give a trainer.RunConfig.")
        if use_tpu and train_batch_size is None:
            raise InvalidSetting("train_batch_size is None with use_tpu=True. Give it.")
        model_dir = _model_dir(model_dir, config)
        self._program = Program(
            model_fn=model_fn,
            params=_checked_params(params),
            config=config.replace(model_dir=model_dir),
            model_dir=model_dir,
            batch_sizes={
                ModeKeys.TRAIN: train_batch_size,
                ModeKeys.EVAL: eval_batch_size,
                ModeKeys.PREDICT: predict_batch_size,
            },
        )
        self._use_tpu = use_tpu
        self._export_to_tpu = export_to_tpu
        self._export_to_cpu = export_to_cpu

    @property
    def config(self) -> RunConfig:
        """How the estimator runs."""
        return self._program.config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the hyperparameters."""
        return dict(self._program.params)

    @property
    def model_dir(self) -> str:
        """Where checkpoints and summaries are."""
        return self._program.model_dir

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The function that builds the model."""
        return self._program.model_fn

    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint of model_dir, or None."""
        path: str | None = tf.train.latest_checkpoint(self.model_dir)
        return path

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> "TPUEstimator":
        """Trains from the newest checkpoint, or from initial values.

        Leaves a checkpoint of the last step, unless the config switches checkpoints off.

        Args:
          input_fn: gives batches of (features, labels), as a tf.data.Dataset or as tensors.
          hooks: SessionRunHooks, called after each loop of iterations_per_loop steps.
          steps: how many steps to make; max_steps: the global step to stop at. One of them, or
            neither to go on until the input ends.
          saving_listeners: told about each checkpoint.

        Returns:
          The estimator.

        Raises:
          InvalidSetting: both or impossible numbers of steps.
          TpuNotFound: use_tpu is True and there is no TPU.
        """
        if steps is not None and max_steps is not None:
            raise InvalidSetting(f"steps is {steps} and max_steps {max_steps}. Give one of them.")
        counts.check("steps", steps, least=1)
        counts.check("max_steps", max_steps, least=1)
        self._demand_device("train")
        train.train(
            self._program,
            input_fn,
            hooks=hooks or (),
            steps=steps,
            max_steps=max_steps,
            saving_listeners=saving_listeners or (),
        )
        return self

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """The metrics of a checkpoint by name, "loss" and "global_step" included.

        Args:
          input_fn: gives batches of (features, labels).
          steps: how many batches; None goes on until the input ends.
          hooks: SessionRunHooks, called after each batch.
          checkpoint_path: which checkpoint; None for the newest.
          name: tells several evaluations of one model apart, on disk and in TensorBoard.

        Raises:
          CheckpointNotFound: there is nothing to evaluate.
          TpuNotFound: use_tpu is True and there is no TPU.
        """
        counts.check("steps", steps, least=1)
        self._demand_device("evaluate")
        return evaluate.evaluate(
            self._program,
            input_fn,
            steps=steps,
            hooks=hooks or (),
            checkpoint_path=checkpoint_path,
            name=name,
        )

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | str | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """An iterator over predictions, in the order of the input, until it ends.

        Args:
          input_fn: gives batches of features.
          predict_keys: which predictions to yield, where they are a dict; None for all.
          hooks: SessionRunHooks, called after each batch.
          checkpoint_path: which checkpoint; None for the newest.
          yield_single_examples: yield row by row; False yields whole batches.

        Raises:
          CheckpointNotFound: there is nothing to predict with.
          TpuNotFound: use_tpu is True and there is no TPU.
        """
        self._demand_device("predict")
        return predict.predict(
            self._program,
            input_fn,
            predict_keys=predict_keys,
            hooks=hooks or (),
            checkpoint_path=checkpoint_path,
            yield_single_examples=yield_single_examples,
        )

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], ServingInputReceiver],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Writes a SavedModel with a CPU and a TPU metagraph; returns its version directory.

        The metagraph {serve} is the model as it is; in {serve, tpu} the whole model runs on a
        TPU. Both have the same signatures and share one set of variables. Needs no TPU.

        Args:
          export_dir_base: where version directories live.
          serving_input_receiver_fn: builds the placeholders and the features.
          assets_extra: path below assets.extra/ → file to copy there.
          as_text: write saved_model.pbtxt in place of saved_model.pb.
          checkpoint_path: which checkpoint; None for the newest.

        Returns:
          The directory's path as bytes, as tf.estimator did.

        Raises:
          CheckpointNotFound: there is nothing to export.
          ExportError: the model cannot be exported as asked.
        """
        directory = export.export_saved_model(
            self._program,
            export_dir_base,
            serving_input_receiver_fn,
            to_cpu=self._export_to_cpu,
            to_tpu=self._export_to_tpu,
            assets_extra=assets_extra,
            as_text=as_text,
            checkpoint_path=checkpoint_path,
        )
        return directory.encode()

    def _demand_device(self, method: str) -> None:
        if not self._use_tpu:
            return
        hardware = devices.find_hardware()
        raise TpuNotFound(
            f"{method}() with use_tpu=True: {hardware}, and trainer cannot run on a TPU yet, real "
            f"or emulated. Pass use_tpu=False to run on the CPU."
        )


def _model_dir(model_dir: str | None, config: RunConfig) -> str:
    if model_dir and config.model_dir and model_dir != config.model_dir:
        raise InvalidSetting(
            f"model_dir is {model_dir!r}, and the config's is {config.model_dir!r}. Give one of "
            f"them, or the same."
        )
    return model_dir or config.model_dir or tempfile.mkdtemp(prefix="trainer-")


def _checked_params(params: Any) -> dict[str, Any]:
    if params is not None and not isinstance(params, Mapping):
        raise InvalidSetting(f"params is {params!r}. Give a dict of hyperparameters, or None.")
    return dict(params or {})
