"""Metrics of tf.compat.v1.metrics, kept as calls that the host can make later."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.model import patching

_ON_THE_WAY = {tf.int64: tf.int32, tf.float64: tf.float32, tf.float16: tf.float32}
"""Types that a TPU does not send → the ones they are sent as."""


@dataclass(frozen=True)
class MetricCall:
    """A call of a metric function.

    Attributes:
      function: of tf.compat.v1.metrics.
      arguments: positional and named ones, with tensors in them.
    """

    function: Callable[..., Any]
    arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def tensors(self) -> list[Any]:
        """The tensors among the arguments."""
        return [each for each in tf.nest.flatten(self.arguments) if tf.is_tensor(each)]

    def made_of(self, tensors: list[Any]) -> Any:
        """The metric, of other tensors."""
        left = iter(tensors)
        flat = [next(left) if tf.is_tensor(x) else x for x in tf.nest.flatten(self.arguments)]
        positional, named = tf.nest.pack_sequence_as(self.arguments, flat)
        return self.function(*positional, **named)


class MetricRecorder:
    """The calls that were kept, each under the pair of tensors that was returned for it."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], MetricCall] = {}
        self._returned: list[Any] = []

    def add(self, call: MetricCall) -> tuple[Any, Any]:
        """Keeps a call; returns a pair as its function would.

        Its tensors are zeros: a summary in the same model_fn may be made of them.
        """
        pair = (tf.zeros([]), tf.zeros([]))
        # Kept, so that no other tensor gets the identity of one of them.
        self._returned.append(pair)
        self._calls[id(pair[0]), id(pair[1])] = call
        return pair

    def calls_of(self, metric_ops: Mapping[str, Any]) -> dict[str, MetricCall]:
        """Name → call, of a model's eval_metric_ops.

        Raises:
          InvalidSetting: a metric is made of ops of its own, which only a host could run.
        """
        calls = {name: self._call_of(metric) for name, metric in metric_ops.items()}
        own = [name for name, call in calls.items() if call is None]
        if own:
            raise InvalidSetting(
                f"eval_metric_ops has {', '.join(map(repr, own))}, which no function of "
                f"tf.compat.v1.metrics returned as it is. A TPU cannot run the ops of a metric: "
                f"use such a function, return a TPUEstimatorSpec with eval_metrics, or evaluate "
                f"with eval_on_tpu=False."
            )
        return {name: call for name, call in calls.items() if call is not None}

    def _call_of(self, metric: Any) -> MetricCall | None:
        is_pair = isinstance(metric, tuple | list) and len(metric) == 2
        return self._calls.get((id(metric[0]), id(metric[1]))) if is_pair else None


@contextmanager
def record_metrics() -> Iterator[MetricRecorder]:
    """Within it the functions of tf.compat.v1.metrics are kept as calls, and make no op.

    It holds for the whole process: enter it around the call of one model_fn.
    """
    module, records = tf.compat.v1.metrics, MetricRecorder()
    functions = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    recording = {name: _recording(function, records) for name, function in functions.items()}
    with patching.patched_attributes(module, recording):
        yield records


def _recording(function: Callable[..., Any], records: MetricRecorder) -> Callable[..., Any]:
    @functools.wraps(function)
    def record(*positional: Any, **named: Any) -> tuple[Any, Any]:
        return records.add(MetricCall(function, (positional, named)))

    return record


@dataclass
class HostMetrics:
    """Metrics of one model as what TPUEstimatorSpec.eval_metrics wants.

    Attributes:
      calls: name → call.
      rows: how many rows a replica's batch has.
    """

    calls: Mapping[str, MetricCall]
    rows: int
    _types: list[Any] = field(default_factory=list)

    def pair(self) -> tuple[Callable[..., Any], list[Any]]:
        """(metric_fn, tensors), each tensor with one row for each example.

        Raises:
          InvalidSetting: a metric is of a tensor that has no row for each example.
        """
        tensors = [
            self._sent(name, call, each)
            for name, call in self.calls.items()
            for each in call.tensors()
        ]
        return self._metric_fn, tensors

    def _sent(self, name: str, call: MetricCall, tensor: Any) -> Any:
        tensor = tf.convert_to_tensor(tensor)
        self._types.append(tensor.dtype)
        if tensor.shape.rank == 0 and call.function.__name__ == "mean":
            # The mean over the batch of one value for all its rows is that value.
            tensor = tf.fill([self.rows], tensor)
        if not tensor.shape.rank or tensor.shape.as_list()[0] != self.rows:
            raise InvalidSetting(
                f"metric {name!r} is made of {tensor.name} of shape {tensor.shape}, which has not "
                f"one row for each of the {self.rows} examples of a replica, so that the host "
                f"cannot put the replicas' together. Give the metric tensors that have, or "
                f"evaluate with eval_on_tpu=False."
            )
        return tf.cast(tensor, _ON_THE_WAY.get(tensor.dtype, tensor.dtype))

    def _metric_fn(self, *tensors: Any) -> dict[str, Any]:
        left = iter([tf.cast(each, kind) for each, kind in zip(tensors, self._types, strict=True)])
        return {
            name: call.made_of([next(left) for _ in call.tensors()])
            for name, call in self.calls.items()
        }
