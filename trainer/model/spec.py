"""What a model_fn returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.config.namedtuple_compat import NamedTupleMixin
from trainer.hooks.training_hooks import HostCallHook
from trainer.model import host_call as host_calls
from trainer.model import spec_validation
from trainer.model.host_call import call_on_host as call_on_host


class ModeKeys:
    """What a model_fn is asked to build; the values are tf.estimator's."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


_NEEDED = {
    ModeKeys.TRAIN: ("loss", "train_op"),
    ModeKeys.EVAL: ("loss",),
    ModeKeys.PREDICT: ("predictions",),
}


@dataclass(frozen=True)
class EstimatorSpec(NamedTupleMixin):
    """The ops and tensors of one mode.

    Attributes:
      mode: one of `ModeKeys`.
      predictions: a tensor, or a dict of tensors with one first dimension; PREDICT needs it.
      loss: a scalar; TRAIN and EVAL need it.
      train_op: makes one step, the global step included; TRAIN needs it.
      eval_metric_ops: name → (value, update op), or a tf_keras Metric that was updated.
      export_outputs: signature name → `PredictOutput`, `ClassificationOutput` or
        `RegressionOutput`; in PREDICT the default signature is filled in.
      training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks of
        each mode; a chief is the only one of a run on one machine.
      scaffold: a tf.compat.v1.train.Scaffold.

    Raises:
      InvalidSetting: a part is missing, does not fit, or is of another graph.
      InvalidType: a part is of a wrong type.
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
        _check_what_both_have(self)
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
        spec_validation.validate_scaffold(_name(self), self.scaffold)

    def as_estimator_spec(self) -> "EstimatorSpec":
        """Itself."""
        return self

    def _replace(self, **changes: Any) -> "EstimatorSpec":
        """A spec with some fields changed; the mode is not one of them."""
        _refuse_other_mode(self, changes)
        return super()._replace(**changes)


@dataclass(frozen=True)
class TPUEstimatorSpec(NamedTupleMixin):
    """The ops and tensors of one mode, in a form that a TPU can run.

    Attributes:
      mode: one of `ModeKeys`.
      predictions: a tensor, or a dict of tensors with one first dimension; PREDICT needs it.
      loss: a scalar; TRAIN and EVAL need it.
      train_op: makes one step, the global step included; TRAIN needs it.
      eval_metrics: (metric_fn, tensors): metric_fn takes the tensors, a list as its arguments
        or a dict as its keyword arguments, and returns name → (value, update op). It runs on
        the host.
      export_outputs: signature name → `PredictOutput`, `ClassificationOutput` or
        `RegressionOutput`; None exports the predictions.
      scaffold_fn: returns a tf.compat.v1.train.Scaffold.
      host_call: (function, tensors): runs on the host, once a training loop.
      training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks of each mode.

    Raises:
      InvalidSetting: a part is missing, does not fit, or is of another graph.
      InvalidType: a part is of a wrong type.
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
        _check_what_both_have(self)
        if self.mode == ModeKeys.PREDICT and self.export_outputs is not None:
            spec_validation.validate_export_outputs(
                _name(self), self.export_outputs, self.predictions
            )
        for name in ("eval_metrics", "host_call"):
            host_calls.validate_host_function(f"{_name(self)} {name}", getattr(self, name))
        _set_hooks(self, "training_hooks", "evaluation_hooks", "prediction_hooks")

    def as_estimator_spec(self) -> EstimatorSpec:
        """The spec off the TPU: host functions are called in the default graph.

        A host_call becomes a hook that runs it once in each `session.run`.
        """
        metrics = call_on_host(self.eval_metrics) if self.eval_metrics else None
        host_call = (HostCallHook(call_on_host(self.host_call)),) if self.host_call else ()
        return EstimatorSpec(
            mode=self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            eval_metric_ops=metrics,
            export_outputs=self.export_outputs,
            training_hooks=(*host_call, *(self.training_hooks or ())),
            scaffold=self.scaffold_fn() if self.scaffold_fn is not None else None,
            evaluation_hooks=(*host_call, *(self.evaluation_hooks or ())),
            prediction_hooks=(*host_call, *(self.prediction_hooks or ())),
        )

    def _replace(self, **changes: Any) -> "TPUEstimatorSpec":
        """A spec with some fields changed; the mode is not one of them."""
        _refuse_other_mode(self, changes)
        return super()._replace(**changes)


AnySpec = EstimatorSpec | TPUEstimatorSpec


def _check_what_both_have(spec: AnySpec) -> None:
    name = _name(spec)
    if spec.mode not in _NEEDED:
        raise InvalidSetting(f"{name} mode is {spec.mode!r}. Give one of {', '.join(_NEEDED)}.")
    missing = [each for each in _NEEDED[spec.mode] if getattr(spec, each) is None]
    if missing:
        raise InvalidSetting(
            f"Missing {' and '.join(missing)} in the {name} of mode {spec.mode!r}. Return it from "
            f"model_fn."
        )
    spec_validation.validate_train_op(name, spec.train_op)
    _set(spec, "loss", spec_validation.validate_scalar_loss(name, spec.loss))
    spec_validation.validate_predictions(name, spec.predictions)


def _set_hooks(spec: AnySpec, *names: str) -> None:
    for each in names:
        _set(
            spec, each, spec_validation.validate_spec_hooks(_name(spec), each, getattr(spec, each))
        )


def _refuse_other_mode(spec: AnySpec, changes: Mapping[str, Any]) -> None:
    if changes.get("mode", spec.mode) != spec.mode:
        raise InvalidSetting(
            f"the mode of an {_name(spec)} cannot be changed, from {spec.mode!r} to "
            f"{changes['mode']!r}. Make a new one."
        )


def _set(spec: AnySpec, name: str, value: Any) -> None:
    object.__setattr__(spec, name, value)


def _name(spec: Any) -> str:
    return type(spec).__name__
