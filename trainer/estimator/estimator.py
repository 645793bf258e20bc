"""Estimator: checks what it is asked for, then lets the mode's own file do it."""

import copy
import dataclasses
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from tpuserve.export import WarmUp
from tpuserve.export.warm_up import normalize_warm_up
from trainer.backends import local
from trainer.backends.base import ExecutionBackend
from trainer.checkpoints import checkpoints, warm_start
from trainer.config import hyperparameters, validation
from trainer.config.run_config import RunConfig
from trainer.estimator import sealed
from trainer.exporting import saved_model
from trainer.model import spec_validation
from trainer.model.model_program import ModelProgram, TPUModelProgram
from trainer.model.spec import ModeKeys
from trainer.modes import evaluate, predict, train

Self = TypeVar("Self", bound="Estimator")


class Estimator:
    """Trains, evaluates, predicts with and exports the model that a model_fn builds.

    Example:
      estimator = Estimator(model_fn, model_dir="/tmp/digits", params={"rate": 0.1})
      estimator.train(input_fn, max_steps=1000)
      estimator.export_saved_model("/tmp/export", serving_input_receiver_fn)

    Attributes:
      config, params: copies of what the constructor was given.
      model_dir: where checkpoints and summaries are.
      model_fn: the model_fn as a function of features, labels, mode and config.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        """Sets the estimator up; nothing runs yet.

        Args:
          model_fn: takes features, labels, mode, params and config, those of them it names, and
            returns an EstimatorSpec.
          model_dir: where checkpoints and summaries go; by default the config's, else a new
            temporary directory.
          config: how to run; None for the defaults.
          params: hyperparameters for model_fn and input_fn: a dict, or any other object.
          warm_start_from: a checkpoint, a SavedModel or a WarmStartSettings that gives initial
            values to a training that has no checkpoint of its own.

        Raises:
          InvalidSetting: an argument is missing, impossible, or contradicts another.
          InvalidType: an argument is of a wrong type.
        """
        config = RunConfig() if config is None else config
        self._set_up(ModelProgram, model_fn, model_dir, config, params, warm_start_from)

    def _set_up(
        self,
        kind: type[ModelProgram],
        model_fn: Any,
        model_dir: str | None,
        config: Any,
        params: Any,
        warm_start_from: Any,
        **more: Any,
    ) -> None:
        sealed.check_no_overrides(type(self))
        if model_fn is None:
            raise InvalidSetting("model_fn must be provided to Estimator. It is None.")
        if not isinstance(config, RunConfig):
            raise InvalidType(f"config is {config!r}. Give a trainer.RunConfig.")
        model_dir = _model_dir(model_dir, config)
        self._program = kind(
            model_fn=model_fn,
            params=hyperparameters.copy_hyperparameters(
                params, takes_items=issubclass(kind, TPUModelProgram)
            ),
            config=config.replace(model_dir=model_dir),
            model_dir=model_dir,
            warm_start=warm_start.to_warm_start_settings(warm_start_from),
            **more,
        )

    @property
    def config(self) -> RunConfig:
        """A copy of how the estimator runs."""
        return copy.deepcopy(self._program.config)

    @property
    def params(self) -> Any:
        """A copy of the hyperparameters."""
        return copy.deepcopy(self._program.params)

    @property
    def model_dir(self) -> str:
        """Where checkpoints and summaries are."""
        return self._program.model_dir

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The function that builds the model, of features, labels, mode and config."""

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return self._program.call_model_fn(features, labels, mode, config=config)

        return model_fn

    @property
    def evaluates_on_tpu(self) -> bool:
        """Whether evaluation wants a TPU, the one that training has."""
        return False

    def with_model_fn(
        self: Self, extend: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> Self:
        """An estimator like this one, of the same model_dir, with another model_fn.

        Args:
          extend: takes the model_fn as the constructor got it, gives the other one.
        """
        other = copy.copy(self)
        other._program = dataclasses.replace(self._program, model_fn=extend(self._program.model_fn))
        return other

    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint of model_dir, or None."""
        return checkpoints.find_checkpoint_or_none(self.model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        """Where the results of the evaluation of that name are written."""
        return evaluate.eval_directory(self.model_dir, name)

    def get_variable_names(self) -> list[str]:
        """The names of all variables in the newest checkpoint.

        Raises:
          CheckpointNotFound: nothing is trained.
        """
        checkpoint = checkpoints.find_checkpoint(self.model_dir)
        return [name for name, _ in tf.train.list_variables(checkpoint)]

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the newest checkpoint, as a numpy array.

        Raises:
          CheckpointNotFound: nothing is trained.
        """
        return tf.train.load_variable(checkpoints.find_checkpoint(self.model_dir), name)

    def train(
        self: Self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Self:
        """Trains from the newest checkpoint, or from initial values.

        Leaves a checkpoint of the last step, unless the config switches checkpoints off.

        Args:
          input_fn: gives batches of (features, labels), as a tf.data.Dataset or as tensors.
          hooks: SessionRunHooks, called after each loop of the config's TPUConfig; each step
            where a plain Estimator has none.
          steps: how many steps to make; max_steps: the global step to stop at. One of them, or
            neither to go on until the input ends.
          saving_listeners: told about each checkpoint.

        Returns:
          The estimator.

        Raises:
          InvalidSetting: both or impossible numbers of steps, or this task does not train.
          InvalidType: a hook or a listener is none.
          SystemExit: with 0, at a SIGTERM, after the running loop and its checkpoint.
        """
        if steps is not None and max_steps is not None:
            raise InvalidSetting(
                f"Can not provide both steps and max_steps: steps is {steps} and max_steps "
                f"{max_steps}. Give one of them."
            )
        steps = validation.whole_steps("steps", steps)
        max_steps = validation.whole_steps("max_steps", max_steps)
        if self._program.config.task_type in ("evaluator", "ps"):
            raise InvalidSetting(
                f"train() was called by a task of type {self._program.config.task_type!r}, which "
                f"does not train. Call it in the chief and the workers, or use "
                f"train_and_evaluate."
            )
        hooks = spec_validation.validate_hooks("train() hooks", hooks)
        for each in saving_listeners or ():
            if not isinstance(each, tf.compat.v1.train.CheckpointSaverListener):
                raise InvalidType(
                    f"saving_listeners holds {each!r}: saving_listeners must be a list of "
                    f"CheckpointSaverListener instances."
                )
        self._train(input_fn, hooks, steps, max_steps, tuple(saving_listeners or ()))
        return self

    def _train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any],
        steps: int | None,
        max_steps: int | None,
        saving_listeners: Sequence[Any],
    ) -> None:
        train.train(
            self._program,
            input_fn,
            self._place(ModeKeys.TRAIN),
            hooks=hooks,
            steps=steps,
            max_steps=max_steps,
            saving_listeners=saving_listeners,
        )

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
          checkpoint_path: which checkpoint; None for the newest, or for initial values where
            there is none.
          name: tells several evaluations of one model apart, on disk and in TensorBoard.

        Raises:
          InvalidSetting: an impossible number of steps.
          InvalidType: a hook is none.
          CheckpointNotFound: the checkpoint that was asked for is not there.
        """
        steps = validation.whole_steps("steps", steps)
        hooks = spec_validation.validate_hooks("evaluate() hooks", hooks)
        return evaluate.evaluate(
            self._program,
            input_fn,
            self._place(ModeKeys.EVAL),
            steps=steps,
            hooks=hooks,
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
    ) -> Generator[Any, None, None]:
        """A generator of predictions, in the order of the input, until it ends.

        Args:
          input_fn: gives batches of features.
          predict_keys: which predictions to yield, where they are a dict; None for all.
          hooks: SessionRunHooks, called after each batch.
          checkpoint_path: which checkpoint; None for the newest, or for initial values where
            there is none.
          yield_single_examples: yield row by row; False yields whole batches.

        Raises:
          InvalidType: a hook is none.
          CheckpointNotFound: the checkpoint that was asked for is not there.
        """
        hooks = spec_validation.validate_hooks("predict() hooks", hooks)
        return predict.predict(
            self._program,
            input_fn,
            self._place(ModeKeys.PREDICT),
            predict_keys=predict_keys,
            hooks=hooks,
            checkpoint_path=checkpoint_path,
            yield_single_examples=yield_single_examples,
        )

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> bytes:
        """Writes a SavedModel; returns its version directory. Needs no TPU.

        Args:
          export_dir_base: where version directories live.
          serving_input_receiver_fn: builds the placeholders and the features.
          assets_extra: path below assets.extra/ → file to copy there.
          as_text: write saved_model.pbtxt in place of saved_model.pb.
          checkpoint_path: which checkpoint; None for the newest.
          experimental_mode: the mode of model_fn to export; TRAIN and EVAL want a function that
            returns a SupervisedInputReceiver.
          warm_up: which warm-up records to write, which TensorFlow Serving and `tpuserve serve`
            run before a version is ready; True for one per signature and batch size.

        Returns:
          The directory's path as bytes, as tf.estimator did.

        Raises:
          CheckpointNotFound: there is nothing to export.
          ExportError: the model cannot be exported as asked.
        """
        functions = {experimental_mode: serving_input_receiver_fn}
        return self._export(
            export_dir_base, functions, assets_extra, as_text, checkpoint_path, warm_up
        )

    def export_savedmodel(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> bytes:
        """Writes a SavedModel for serving, under the older name; see `export_saved_model`.

        Args:
          export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path,
            warm_up: see there.
          strip_default_attrs: leave out attributes of ops that have their default value.
        """
        return self._export(
            export_dir_base,
            {ModeKeys.PREDICT: serving_input_receiver_fn},
            assets_extra,
            as_text,
            checkpoint_path,
            warm_up,
            strip_default_attrs=strip_default_attrs,
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str,
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> bytes:
        """Writes a SavedModel with a metagraph for each of several modes.

        Args:
          input_receiver_fn_map: mode → function that returns a ServingInputReceiver (PREDICT) or a
            SupervisedInputReceiver (TRAIN, EVAL).
          export_dir_base, assets_extra, as_text, checkpoint_path, warm_up: see
            `export_saved_model`.
        """
        return self._export(
            export_dir_base, input_receiver_fn_map, assets_extra, as_text, checkpoint_path, warm_up
        )

    def _place(self, mode: str) -> ExecutionBackend:
        """Where a mode runs."""
        return local.place(self._program, mode)

    def _export(
        self,
        export_dir_base: str,
        input_receiver_fns: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None,
        as_text: bool,
        checkpoint_path: str | None,
        warm_up: WarmUp | bool | None,
        strip_default_attrs: bool = True,
    ) -> bytes:
        directory = saved_model.write_saved_model(
            self._program,
            export_dir_base,
            input_receiver_fns,
            assets_extra=assets_extra,
            as_text=as_text,
            checkpoint_path=checkpoint_path,
            strip_default_attrs=strip_default_attrs,
            warm_up=normalize_warm_up(warm_up),
        )
        return directory.encode()


def _model_dir(model_dir: str | None, config: RunConfig) -> str:
    if model_dir and config.model_dir and str(model_dir) != config.model_dir:
        raise InvalidSetting(
            f"model_dir is {str(model_dir)!r}, and the config's is {config.model_dir!r}. Give one "
            f"of them, or the same."
        )
    return str(model_dir or config.model_dir or tempfile.mkdtemp(prefix="trainer-"))
