"""Moves the metrics of a model_fn to the host, because a TPU cannot run the ops of a metric.

While model_fn is called, calls of tf.compat.v1.metrics are recorded and create no ops. The host
makes the recorded calls later, with the tensors that the TPU sends.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.model import patching

# Maps dtypes that the outfeed does not support to the dtypes in which tensors are transferred
# instead.
_TRANSFER_DTYPES = {tf.int64: tf.int32, tf.float64: tf.float32, tf.float16: tf.float32}


@dataclass(frozen=True)
class MetricCall:
    """A recorded call of a function of tf.compat.v1.metrics."""

    function: Callable[..., Any]
    arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def tensors(self) -> list[Any]:
        """Return the tensors among the arguments."""
        return [part for part in tf.nest.flatten(self.arguments) if tf.is_tensor(part)]

    def replay(self, tensors: list[Any]) -> Any:
        """Call the metric function with the recorded arguments, but with other tensors in them."""
        remaining = iter(tensors)
        flat = [
            next(remaining) if tf.is_tensor(part) else part
            for part in tf.nest.flatten(self.arguments)
        ]
        positional, named = tf.nest.pack_sequence_as(self.arguments, flat)
        return self.function(*positional, **named)


class MetricRecorder:
    """Records calls of metric functions, and finds the call that returned a given metric."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], MetricCall] = {}
        self._returned: list[Any] = []

    def add(self, call: MetricCall) -> tuple[Any, Any]:
        """Record a call, and return a placeholder for the result of the metric function.

        Returns:
          (value, update op), both scalar tensors of value 0. They are tensors because model_fn may
          also use the value in a summary.
        """
        pair = (tf.zeros([]), tf.zeros([]))
        # Store the call by the ids of the two tensors, by which `find_calls` finds it. Keep
        # references to the tensors too, so that no later object can have the same id.
        self._returned.append(pair)
        self._calls[id(pair[0]), id(pair[1])] = call
        return pair

    def find_calls(self, metric_ops: Mapping[str, Any]) -> dict[str, MetricCall]:
        """Find the recorded calls that returned the values of a model's eval_metric_ops."""
        calls = {name: self._find_call(metric) for name, metric in metric_ops.items()}
        unknown = [name for name, call in calls.items() if call is None]
        if unknown:
            raise InvalidSetting(
                f"eval_metric_ops has {', '.join(map(repr, unknown))}, which no function of "
                f"tf.compat.v1.metrics returned as it is. A TPU cannot run the ops of a metric: "
                f"use such a function, return a TPUEstimatorSpec with eval_metrics, or evaluate "
                f"with eval_on_tpu=False."
            )
        return {name: call for name, call in calls.items() if call is not None}

    def _find_call(self, metric: Any) -> MetricCall | None:
        is_pair = isinstance(metric, tuple | list) and len(metric) == 2
        return self._calls.get((id(metric[0]), id(metric[1]))) if is_pair else None


@contextmanager
def record_metrics() -> Iterator[MetricRecorder]:
    """Make the functions of tf.compat.v1.metrics record their calls, inside a with block.

    The functions then create no ops of metrics.
    """
    module, recorder = tf.compat.v1.metrics, MetricRecorder()
    functions = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    replacements = {
        name: _make_recording_function(function, recorder) for name, function in functions.items()
    }
    with patching.patched_attributes(module, replacements):
        yield recorder


def _make_recording_function(
    function: Callable[..., Any], recorder: MetricRecorder
) -> Callable[..., Any]:
    @functools.wraps(function)
    def record(*positional: Any, **named: Any) -> tuple[Any, Any]:
        return recorder.add(MetricCall(function, (positional, named)))

    return record


@dataclass
class HostMetrics:
    """Computes recorded metrics on the host, as eval_metrics of a TPUEstimatorSpec."""

    calls: Mapping[str, MetricCall]
    num_rows: int
    _dtypes: list[Any] = field(default_factory=list)

    def to_eval_metrics(self) -> tuple[Callable[..., Any], list[Any]]:
        """Build the value of eval_metrics for a TPUEstimatorSpec.

        Returns:
          The metric function, and a list of its arguments: tensors of shape [num_rows, ...].

        Raises:
          InvalidSetting: the first dimension of a metric's tensor is not the batch, and the tensor
            is not a scalar argument of tf.compat.v1.metrics.mean.
        """
        tensors = [
            self._to_transferable(name, call, tensor)
            for name, call in self.calls.items()
            for tensor in call.tensors()
        ]
        return self._metric_fn, tensors

    def _to_transferable(self, name: str, call: MetricCall, tensor: Any) -> Any:
        """Convert a metric's argument to a tensor [num_rows, ...] that the outfeed supports."""
        tensor = tf.convert_to_tensor(tensor)
        self._dtypes.append(tensor.dtype)
        if tensor.shape.rank == 0 and call.function.__name__ == "mean":
            # Repeat a scalar, such as the loss, once for each example: the first dimension of the
            # tensors of eval_metrics must be the batch.
            tensor = tf.fill([self.num_rows], tensor)
        if not tensor.shape.rank or tensor.shape.as_list()[0] != self.num_rows:
            raise InvalidSetting(
                f"metric {name!r} is made of {tensor.name} of shape {tensor.shape}, which has not "
                f"one row for each of the {self.num_rows} examples of a replica, so the host "
                f"cannot concatenate the replicas' rows. Give the metric tensors with one row "
                f"per example, or evaluate with eval_on_tpu=False."
            )
        return tf.cast(tensor, _TRANSFER_DTYPES.get(tensor.dtype, tensor.dtype))

    def _metric_fn(self, *tensors: Any) -> dict[str, Any]:
        remaining = iter(
            [tf.cast(tensor, dtype) for tensor, dtype in zip(tensors, self._dtypes, strict=True)]
        )
        return {
            name: call.replay([next(remaining) for _ in call.tensors()])
            for name, call in self.calls.items()
        }
