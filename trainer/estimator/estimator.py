"""Estimator: validates the arguments of its methods, and calls the package that does the work.

The package `trainer.modes` trains, evaluates and predicts; `trainer.exporting` exports.
"""

import copy
import dataclasses
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType
from tpuserve.export import WarmUp
from tpuserve.export.warm_up import normalize_warm_up
from trainer.backends.base import ExecutionBackend
from trainer.backends.local import create_local_backend
from trainer.backends.tpu.strategy import create_strategy_backend
from trainer.checkpoints import checkpoints, warm_start
from trainer.config import hyperparameters, strategies
from trainer.config.run_config import RunConfig
from trainer.estimator import sealed
from trainer.exporting import saved_model
from trainer.exporting.strategies import ExportTargets
from trainer.hosts import program
from trainer.hosts.group import HostGroup, current_group
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
      config: a copy of the RunConfig, with the model_dir of the estimator.
      params: a copy of the hyperparameters.
      model_dir: the directory of checkpoints and summaries.
      model_fn: the model_fn as a function of features, labels, mode and config; its argument params
        is bound to the estimator's hyperparameters.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        """Validate and store the settings; no graph is built yet.

        Args:
          model_fn: a function that takes features, and any of labels, mode, params and config, by
            name. It returns an EstimatorSpec.
          model_dir: the directory of checkpoints and summaries. None takes the model_dir of the
            config or, if that is None too, creates a temporary directory.
          config: the settings of the run; None stands for `RunConfig()`.
          params: hyperparameters for model_fn and input_fn, a dict or any other object.
          warm_start_from: the source of initial values if model_dir holds no checkpoint: the path
            of a checkpoint or of a SavedModel, or a `WarmStartSettings`.

        Raises:
          InvalidSetting: an argument is missing, out of range, or contradicts another argument.
          InvalidType: an argument has a wrong type.
        """
        config = RunConfig() if config is None else config
        self._set_up(ModelProgram, model_fn, model_dir, config, params, warm_start_from)

    def _set_up(
        self,
        program_type: type[ModelProgram],
        model_fn: Any,
        model_dir: str | None,
        config: Any,
        params: Any,
        warm_start_from: Any,
        **program_arguments: Any,
    ) -> None:
        """Validate the arguments that all estimators share, and create the ModelProgram."""
        sealed.check_no_overrides(type(self))
        if model_fn is None:
            raise InvalidSetting("model_fn must be provided to Estimator. It is None.")
        if not isinstance(config, RunConfig):
            raise InvalidType(f"config is {config!r}. Give a trainer.RunConfig.")
        model_dir = _resolve_model_dir(model_dir, config)
        self._program = program_type(
            model_fn=model_fn,
            params=hyperparameters.copy_hyperparameters(
                params, takes_items=issubclass(program_type, TPUModelProgram)
            ),
            config=config.replace(model_dir=model_dir),
            model_dir=model_dir,
            warm_start=warm_start.to_warm_start_settings(warm_start_from),
            **program_arguments,
        )
        strategies.log_strategies(config)

    @property
    def config(self) -> RunConfig:
        """A copy of the RunConfig."""
        return copy.deepcopy(self._program.config)

    @property
    def params(self) -> Any:
        """A copy of the hyperparameters."""
        return copy.deepcopy(self._program.params)

    @property
    def model_dir(self) -> str:
        """The directory of checkpoints and summaries."""
        return self._program.model_dir

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model_fn as a function of features, labels, mode and config; params is bound."""

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return self._program.call_model_fn(features, labels, mode, config=config)

        return model_fn

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """Call model_fn; public programs call this private method of tf.estimator."""
        return self.model_fn(features, labels, mode, config)

    @property
    def evaluates_on_tpu(self) -> bool:
        """Whether evaluation runs on a TPU: never, unless the estimator is a TPUEstimator."""
        return False

    def with_model_fn(
        self: Self, extend: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> Self:
        """Return a copy of the estimator with another model_fn and the same model_dir.

        Args:
          extend: takes the model_fn that was passed to the constructor, and returns the model_fn
            of the copy.
        """
        other = copy.copy(self)
        other._program = dataclasses.replace(self._program, model_fn=extend(self._program.model_fn))
        return other

    def latest_checkpoint(self) -> str | None:
        """Return the path of the newest checkpoint in model_dir, or None if there is none."""
        return checkpoints.find_checkpoint_or_none(self.model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the directory of an evaluation's event files.

        Args:
          name: the name that was passed to `evaluate`; None for an evaluation without a name.
        """
        return evaluate.eval_directory(self.model_dir, name)

    def get_variable_names(self) -> list[str]:
        """Return the names of all variables in the newest checkpoint.

        Raises:
          CheckpointNotFound: model_dir holds no checkpoint.
        """
        checkpoint = checkpoints.find_checkpoint(self.model_dir)
        return [name for name, _ in tf.train.list_variables(checkpoint)]

    def get_variable_value(self, name: str) -> Any:
        """Read the value of a variable from the newest checkpoint.

        Args:
          name: the name of the variable, without ":0".

        Returns:
          A numpy array of the variable's shape and dtype; a numpy scalar for a scalar variable.

        Raises:
          CheckpointNotFound: model_dir holds no checkpoint.
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
        """Train from the newest checkpoint, or from initial values if there is no checkpoint.

        Training ends with a checkpoint of the last step, unless the config disables checkpoints.
        Pass at most one of steps and max_steps; without either, training ends with the input.

        Args:
          input_fn: returns batches of (features, labels), as a tf.data.Dataset or as tensors.
          hooks: SessionRunHooks.
          steps: the number of steps to train, starting from the current global step.
          max_steps: the global step at which to stop. If the checkpoint has reached this step,
            train() does nothing.
          saving_listeners: CheckpointSaverListeners, called before and after each checkpoint is
            saved.

        Returns:
          The estimator, so that calls can be chained.

        Raises:
          InvalidSetting: both numbers of steps are set, a number is not positive, or this process
            is an evaluator or a parameter server, which does not train.
          SystemExit: SIGTERM arrived. The exception has status 0. It is raised after the current
            training loop has ended and a checkpoint is saved.
        """
        if steps is not None and max_steps is not None:
            raise InvalidSetting(
                f"Can not provide both steps and max_steps: steps is {steps} and max_steps "
                f"{max_steps}. Give one of them."
            )
        steps = validation.round_up_steps("steps", steps)
        max_steps = validation.round_up_steps("max_steps", max_steps)
        if self._program.config.task_type in ("evaluator", "ps"):
            raise InvalidSetting(
                f"train() was called by a task of type {self._program.config.task_type!r}, which "
                f"does not train. Call it in the chief and the workers, or use "
                f"train_and_evaluate."
            )
        hooks = spec_validation.validate_hooks("train() hooks", hooks)
        listeners = spec_validation.validate_listeners("saving_listeners", saving_listeners)
        train.train(
            self._program,
            self._adapt_input_fn(input_fn),
            self._select_backend(ModeKeys.TRAIN),
            hooks=hooks,
            steps=steps,
            max_steps=max_steps,
            saving_listeners=listeners,
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
        """Evaluate a checkpoint, and write the metrics for TensorBoard.

        Args:
          input_fn: returns batches of (features, labels), as a tf.data.Dataset or as tensors.
          steps: the number of batches to evaluate; None evaluates until the input ends.
          hooks: SessionRunHooks; they run once per batch.
          checkpoint_path: the checkpoint to evaluate; None takes the newest checkpoint, or
            initial values if there is no checkpoint.
          name: a name that separates several evaluations of one model, on disk and in
            TensorBoard.

        Returns:
          Metric name → value, including "loss" and "global_step"; scalars are NumPy's, of the
          metrics' types.

        Raises:
          CheckpointNotFound: checkpoint_path does not exist.
        """
        steps = validation.round_up_steps("steps", steps)
        if steps is not None and not self.evaluates_on_tpu:
            # A step of eval_distribute takes a batch for each replica.
            steps *= strategies.count_replicas(self._program.config.eval_distribute)
        hooks = spec_validation.validate_hooks("evaluate() hooks", hooks)
        return evaluate.evaluate(
            self._program,
            self._adapt_input_fn(input_fn),
            self._select_backend(ModeKeys.EVAL),
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
        """Yield predictions in the order of the input, until the input ends.

        Args:
          input_fn: returns batches of features, or of (features, labels). The labels are passed to
            model_fn if it has an argument for them.
          predict_keys: the names of the predictions to yield if the model's predictions are a
            dict; None yields all.
          hooks: SessionRunHooks; they run once per batch.
          checkpoint_path: the checkpoint to predict with; None takes the newest checkpoint, or
            initial values if there is no checkpoint.
          yield_single_examples: whether to yield example by example; False yields whole batches.

        Yields:
          The predictions for one example, or for one batch: a dict of arrays by name, or one array.
          Arrays for a batch have the shape [batch size, ...]; arrays for one example lack the first
          dimension.

        Raises:
          CheckpointNotFound: checkpoint_path does not exist.
        """
        hooks = spec_validation.validate_hooks("predict() hooks", hooks)
        return predict.predict(
            self._program,
            self._adapt_input_fn(input_fn),
            self._select_backend(ModeKeys.PREDICT),
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
        """Write a SavedModel of a checkpoint to a new version directory. Needs no TPU.

        If several hosts train together, only host 0 writes. All hosts return the directory.

        Args:
          serving_input_receiver_fn: builds the placeholders and the features, and returns a
            ServingInputReceiver.
          assets_extra: path below assets.extra/ → path of the file to copy there.
          as_text: whether to write saved_model.pbtxt instead of saved_model.pb.
          checkpoint_path: the checkpoint to export; None takes the newest checkpoint.
          experimental_mode: the mode to export. TRAIN and EVAL require a function that returns a
            SupervisedInputReceiver.
          warm_up: which warm-up requests to write into assets.extra/. TensorFlow Serving and
            `tpuserve serve` run them before a version becomes available.

        Returns:
          The path of the version directory as bytes, as tf.estimator returns it.

        Raises:
          ExportError: the model cannot be exported with these settings.
          InvalidSetting: the receiver function is missing or returns a wrong type.
        """
        input_receiver_fns = {experimental_mode: serving_input_receiver_fn}
        return self._export(
            export_dir_base, input_receiver_fns, assets_extra, as_text, checkpoint_path, warm_up
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
        """Write a SavedModel for serving; an older variant of `export_saved_model`.

        Args:
          export_dir_base: the directory that receives the version directory.
          serving_input_receiver_fn: builds the placeholders and the features, and returns a
            ServingInputReceiver.
          assets_extra: path below assets.extra/ → path of the file to copy there.
          as_text: whether to write saved_model.pbtxt instead of saved_model.pb.
          checkpoint_path: the checkpoint to export; None takes the newest checkpoint.
          strip_default_attrs: whether to omit op attributes that have their default value.
          warm_up: which warm-up requests to write into assets.extra/; True writes one request per
            signature and batch size.

        Returns:
          The path of the version directory as bytes.

        Raises:
          ExportError: the model cannot be exported with these settings.
          InvalidSetting: the receiver function is missing or returns a wrong type.
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
        """Write a SavedModel with one metagraph for each of several modes.

        Args:
          export_dir_base: the directory that receives the version directory.
          input_receiver_fn_map: mode → function that returns a ServingInputReceiver (PREDICT) or a
            SupervisedInputReceiver (TRAIN, EVAL).
          assets_extra: path below assets.extra/ → path of the file to copy there.
          as_text: whether to write saved_model.pbtxt instead of saved_model.pb.
          checkpoint_path: the checkpoint to export; None takes the newest checkpoint.
          warm_up: which warm-up requests to write into assets.extra/; True writes one request per
            signature and batch size.

        Returns:
          The path of the version directory as bytes.

        Raises:
          ExportError: the model cannot be exported with these settings.
          InvalidSetting: a mode is unknown, or a receiver function is missing or returns a wrong
            type.
        """
        return self._export(
            export_dir_base, input_receiver_fn_map, assets_extra, as_text, checkpoint_path, warm_up
        )

    def _adapt_input_fn(self, input_fn: Callable[..., Any]) -> Callable[..., Any]:
        return input_fn

    def _select_backend(self, mode: str) -> ExecutionBackend:
        """Return the execution backend (CPU and GPU, or TPU) that runs one of `ModeKeys`."""
        if mode == ModeKeys.TRAIN and self._trains_replicas:
            return create_strategy_backend(self._program)
        return create_local_backend(self._program, mode)

    @property
    def _trains_replicas(self) -> bool:
        """Whether the strategy of training has several replicas."""
        return strategies.count_replicas(self._program.config.train_distribute) > 1

    @property
    def runs_on_several_hosts(self) -> bool:
        """Whether the processes of several hosts train together."""
        return self._trains_replicas and program.runs_on_several_hosts(self._program.config)

    def _export_targets(self) -> ExportTargets:
        """Return which metagraphs an export writes: for the CPU, for the TPU, or both."""
        return ExportTargets(to_cpu=True, to_tpu=False)

    def _export(
        self,
        export_dir_base: str,
        input_receiver_fns: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None,
        as_text: bool,
        checkpoint_path: str | None,
        warm_up: WarmUp | bool | None,
        strip_default_attrs: bool = True,
        targets: ExportTargets | None = None,
    ) -> bytes:
        """Write a SavedModel, and return the path of its version directory as bytes."""

        def write() -> str:
            return saved_model.write_saved_model(
                self._program,
                export_dir_base,
                input_receiver_fns,
                self._export_targets() if targets is None else targets,
                assets_extra=assets_extra,
                as_text=as_text,
                checkpoint_path=checkpoint_path,
                strip_default_attrs=strip_default_attrs,
                warm_up=normalize_warm_up(warm_up),
            )

        directory: str = self._join_hosts().run_on_first("the export", write)
        return directory.encode()

    def _join_hosts(self) -> HostGroup:
        """Return the group of hosts that run this program; connect to them if there are several."""
        is_joined = self.runs_on_several_hosts
        return program.join_hosts(self._program.config) if is_joined else current_group()


def _resolve_model_dir(model_dir: str | None, config: RunConfig) -> str:
    if model_dir and config.model_dir and str(model_dir) != config.model_dir:
        raise InvalidSetting(
            f"model_dir is {str(model_dir)!r}, and the config's is {config.model_dir!r}. Give one "
            f"of them, or the same."
        )
    return str(model_dir or config.model_dir or tempfile.mkdtemp(prefix="trainer-"))
