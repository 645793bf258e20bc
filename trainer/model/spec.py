"""EstimatorSpec and TPUEstimatorSpec, which a model_fn returns."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config.namedtuple_compat import NamedTupleMixin
from trainer.execution.host_call_step import join_host_call
from trainer.hooks.training_hooks import HostCallHook, SummaryWritersHook
from trainer.model import spec_validation


def call_on_host(host_function: tuple[Callable[..., Any], Any]) -> Any:
    """Call the function of an eval_metrics or host_call pair with its tensors."""
    function, tensors = host_function
    return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)


def validate_host_function(name: str, pair: Any) -> None:
    """Check that a value is None, or a pair of a function and the function's tensors.

    Raises:
      InvalidSetting: the value is not a pair, the tensors are not a list or dict, or their number
        does not match the function's arguments.
    """
    if pair is None:
        return
    if isinstance(pair, Mapping):
        raise InvalidSetting(
            f"{name} is a dict, as eval_metric_ops of an EstimatorSpec is. Give a pair (function, "
            f"tensors): the function runs on the host, takes the tensors and returns the dict."
        )
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidSetting(f"{name} is {pair!r}. Give a pair (function, tensors).")
    function, tensors = pair
    if not callable(function):
        raise InvalidType(
            f"{name} starts with {function!r}, which cannot be called. Give a pair (function, "
            f"tensors)."
        )
    if not isinstance(tensors, (tuple, list, Mapping)):
        raise InvalidSetting(f"{name} has tensors {tensors!r}. Give a list or a dict of tensors.")
    if not isinstance(tensors, Mapping):
        _check_argument_count(name, function, tensors)


def _check_argument_count(name: str, function: Callable[..., Any], tensors: Any) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # A function written in C may have no signature. Accept it without a check.
        return
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    accepted = [parameter for parameter in parameters if parameter.kind in by_position]
    required = [parameter for parameter in accepted if parameter.default is inspect.Parameter.empty]
    if not len(required) <= len(tensors) <= len(accepted):
        names = ", ".join(parameter.name for parameter in accepted)
        raise InvalidSetting(
            f"{name} has {len(tensors)} tensors for a function with the arguments "
            f"({names}). Give one tensor for each, in this order."
        )


class ModeKeys:
    """The modes in which a model_fn is called, with the values that they have in tf.estimator."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


_REQUIRED_FIELDS = {
    ModeKeys.TRAIN: ("loss", "train_op"),
    ModeKeys.EVAL: ("loss",),
    ModeKeys.PREDICT: ("predictions",),
}


@dataclass(frozen=True)
class EstimatorSpec(NamedTupleMixin):
    """The ops and tensors of a model in one mode, which a model_fn returns.

    Attributes:
      predictions: a tensor, or a dict of tensors with equal first dimensions; required in PREDICT.
      loss: a scalar; required in TRAIN and EVAL.
      train_op: makes one step and increments the global step; required in TRAIN.
      eval_metric_ops: a dict of metrics by name. A metric is a pair (value, update op), or a
        tf_keras Metric on which model_fn has called update_state, which becomes such a pair.
      export_outputs: signature name → `PredictOutput`, `ClassificationOutput` or
        `RegressionOutput`. In PREDICT, the default signature is added if it is missing.
      training_chief_hooks: SessionRunHooks for TRAIN that run only on the chief. A process without
        a cluster is a chief.
      training_hooks: SessionRunHooks for TRAIN.
      scaffold: a tf.compat.v1.train.Scaffold; a new one if it is not given.
      evaluation_hooks: SessionRunHooks for EVAL.
      prediction_hooks: SessionRunHooks for PREDICT.

    Raises:
      InvalidSetting: a field is missing or invalid, or is a tensor of another graph.
      InvalidType: a field has a wrong type.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    export_outputs: Mapping[str, Any] | None = None
    training_chief_hooks: Sequence[Any] | None = None
    training_hooks: Sequence[Any] | None = None
    scaffold: Any = None
    evaluation_hooks: Sequence[Any] | None = None
    prediction_hooks: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _check_common_fields(self)
        _set(self, "predictions", {} if self.predictions is None else self.predictions)
        _set(
            self,
            "eval_metric_ops",
            spec_validation.validate_metric_ops(_name(self), self.eval_metric_ops),
        )
        if self.mode == ModeKeys.PREDICT:
            outputs = spec_validation.validate_export_outputs(
                _name(self), self.export_outputs, self.predictions
            )
            _set(self, "export_outputs", outputs)
        _set_hooks(
            self, "training_chief_hooks", "training_hooks", "evaluation_hooks", "prediction_hooks"
        )
        _set(self, "scaffold", spec_validation.validate_scaffold(_name(self), self.scaffold))

    def as_estimator_spec(self) -> "EstimatorSpec":
        """Return this object, which is an EstimatorSpec already."""
        return self

    def _replace(self, **changes: Any) -> "EstimatorSpec":
        """Return a copy with some fields replaced; the mode cannot be replaced."""
        _check_same_mode(self, changes)
        return super()._replace(**changes)


@dataclass(frozen=True)
class TPUEstimatorSpec(NamedTupleMixin):
    """The ops and tensors of a model in one mode, in a form that a TPU can run.

    Attributes:
      predictions: a tensor, or a dict of tensors with equal first dimensions; required in PREDICT.
      loss: a scalar; required in TRAIN and EVAL.
      train_op: makes one step and increments the global step; required in TRAIN.
      eval_metrics: (metric_fn, tensors): metric_fn runs on the host, takes the tensors (a list by
        position, a dict by keyword), and returns name → (value, update op).
      export_outputs: signature name → `PredictOutput`, `ClassificationOutput` or
        `RegressionOutput`; None exports the predictions.
      scaffold_fn: function that returns a tf.compat.v1.train.Scaffold.
      host_call: (function, tensors): the function builds ops that run on the host in each step,
        with the values of the tensors in that step.
      evaluation_hooks: SessionRunHooks for EVAL.
      prediction_hooks: SessionRunHooks for PREDICT.

    Raises:
      InvalidSetting: a field is missing or invalid, or is a tensor of another graph.
      InvalidType: a field has a wrong type.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metrics: tuple[Callable[..., Any], Any] | None = None
    export_outputs: Mapping[str, Any] | None = None
    scaffold_fn: Callable[[], Any] | None = None
    host_call: tuple[Callable[..., Any], Any] | None = None
    training_hooks: Sequence[Any] | None = None
    evaluation_hooks: Sequence[Any] | None = None
    prediction_hooks: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _check_common_fields(self)
        if self.mode == ModeKeys.PREDICT and self.export_outputs is not None:
            spec_validation.validate_export_outputs(
                _name(self), self.export_outputs, self.predictions
            )
        for name in ("eval_metrics", "host_call"):
            validate_host_function(f"{_name(self)} {name}", getattr(self, name))
        _set_hooks(self, "training_hooks", "evaluation_hooks", "prediction_hooks")

    def as_estimator_spec(self) -> EstimatorSpec:
        """Convert to an EstimatorSpec, with which the model runs on a CPU or GPU.

        The functions of eval_metrics and host_call are called. In training, the train_op also runs
        the ops of the host_call, so that they run in each step of a loop. In other modes, a hook
        runs them once in each `session.run`.
        """
        metrics = call_on_host(self.eval_metrics) if self.eval_metrics else None
        train_op = self.train_op
        host_call: tuple[Any, ...] = ()
        if self.host_call:
            fetches = call_on_host(self.host_call)
            host_call = (HostCallHook(fetches),)
            if self.mode == ModeKeys.TRAIN:
                train_op = join_host_call(train_op, self.host_call[1], fetches)
                host_call = (SummaryWritersHook(),)
        return EstimatorSpec(
            mode=self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=train_op,
            eval_metric_ops=metrics,
            export_outputs=self.export_outputs,
            training_hooks=(*host_call, *(self.training_hooks or ())),
            scaffold=self.scaffold_fn() if self.scaffold_fn is not None else None,
            evaluation_hooks=(*host_call, *(self.evaluation_hooks or ())),
            prediction_hooks=(*host_call, *(self.prediction_hooks or ())),
        )

    def _replace(self, **changes: Any) -> "TPUEstimatorSpec":
        """Return a copy with some fields replaced; the mode cannot be replaced."""
        _check_same_mode(self, changes)
        return super()._replace(**changes)


AnySpec = EstimatorSpec | TPUEstimatorSpec


def _check_common_fields(spec: AnySpec) -> None:
    name = _name(spec)
    if spec.mode not in _REQUIRED_FIELDS:
        raise InvalidSetting(
            f"{name} mode is {spec.mode!r}. Give one of {', '.join(_REQUIRED_FIELDS)}."
        )
    missing = [field for field in _REQUIRED_FIELDS[spec.mode] if getattr(spec, field) is None]
    if missing:
        raise InvalidSetting(
            f"Missing {' and '.join(missing)} in the {name} of mode {spec.mode!r}. Return it from "
            f"model_fn."
        )
    spec_validation.validate_train_op(name, spec.train_op)
    _set(spec, "loss", spec_validation.validate_scalar_loss(name, spec.loss))
    spec_validation.validate_predictions(name, spec.predictions)


def _set_hooks(spec: AnySpec, *names: str) -> None:
    for name in names:
        _set(
            spec, name, spec_validation.validate_hooks(f"{_name(spec)} {name}", getattr(spec, name))
        )


def _check_same_mode(spec: AnySpec, changes: Mapping[str, Any]) -> None:
    if changes.get("mode", spec.mode) != spec.mode:
        raise InvalidSetting(
            f"the mode of an {_name(spec)} cannot be changed, from {spec.mode!r} to "
            f"{changes['mode']!r}. Make a new spec."
        )


def _set(spec: AnySpec, name: str, value: Any) -> None:
    object.__setattr__(spec, name, value)


def _name(spec: Any) -> str:
    return type(spec).__name__
