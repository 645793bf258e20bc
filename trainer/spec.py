"""What a model_fn returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting


class ModeKeys:
    """What a model_fn is asked to build; the values are tf.estimator's."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclass(frozen=True)
class TPUEstimatorSpec:
    """The ops and tensors of one mode.

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
        needed = {
            ModeKeys.TRAIN: ("loss", "train_op"),
            ModeKeys.EVAL: ("loss",),
            ModeKeys.PREDICT: ("predictions",),
        }
        if self.mode not in needed:
            raise InvalidSetting(
                f"TPUEstimatorSpec mode is {self.mode!r}. Give one of {', '.join(needed)}."
            )
        missing = [name for name in needed[self.mode] if getattr(self, name) is None]
        if missing:
            raise InvalidSetting(
                f"Missing {' and '.join(missing)} in the TPUEstimatorSpec of mode "
                f"{self.mode!r}. Return it from model_fn."
            )
        if self.mode != ModeKeys.PREDICT:
            _demand_scalar("loss", self.loss)
        for name in ("eval_metrics", "host_call"):
            _demand_host_function(name, getattr(self, name))
        for name in ("training_hooks", "evaluation_hooks", "prediction_hooks"):
            for hook in getattr(self, name) or ():
                _demand_hook(name, hook)

    def scaffold(self) -> Any:
        """The Scaffold that scaffold_fn gives, or None where there is no such function."""
        return self.scaffold_fn() if self.scaffold_fn is not None else None


def call_on_host(host_function: tuple[Callable[..., Any], Any]) -> Any:
    """What the function of an eval_metrics or host_call pair returns for its tensors."""
    function, tensors = host_function
    return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)


def _demand_scalar(name: str, value: Any) -> None:
    if not tf.is_tensor(value):
        raise InvalidSetting(
            f"TPUEstimatorSpec {name} is {value!r}, which is no tensor. Give a scalar tensor."
        )
    if value.shape.rank not in (0, None):
        raise InvalidSetting(
            f"TPUEstimatorSpec {name} has shape {value.shape.as_list()}. Give a scalar, such as "
            f"tf.reduce_mean of it."
        )


def _demand_host_function(name: str, pair: Any) -> None:
    if pair is None:
        return
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidSetting(
            f"TPUEstimatorSpec {name} is {pair!r}. Give a pair (function, tensors)."
        )
    if not callable(pair[0]):
        raise InvalidSetting(
            f"TPUEstimatorSpec {name} starts with {pair[0]!r}, which cannot be called. Give a "
            f"pair (function, tensors)."
        )
    if not isinstance(pair[1], (tuple, list, Mapping)):
        raise InvalidSetting(
            f"TPUEstimatorSpec {name} has tensors {pair[1]!r}. Give a list or a dict of tensors."
        )


def _demand_hook(name: str, hook: Any) -> None:
    if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
        raise InvalidSetting(
            f"TPUEstimatorSpec {name} holds {hook!r}. Give tf.compat.v1.train.SessionRunHooks."
        )
