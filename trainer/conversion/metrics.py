"""Records calls of tf.compat.v1.metrics, so that the host can make the calls later."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.model import patching

# Dtypes that the outfeed does not support → the dtypes that are transferred instead.
_TRANSFER_DTYPES = {tf.int64: tf.int32, tf.float64: tf.float32, tf.float16: tf.float32}


@dataclass(frozen=True)
class MetricCall:
    """A recorded call of a metric function.

    Attributes:
      function: a function of tf.compat.v1.metrics.
      arguments: the positional and the keyword arguments, which contain tensors.
    """

    function: Callable[..., Any]
    arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def tensors(self) -> list[Any]:
        """Return the tensors among the arguments."""
        return [part for part in tf.nest.flatten(self.arguments) if tf.is_tensor(part)]

    def replay(self, tensors: list[Any]) -> Any:
        """Call the metric function with other tensors in place of the recorded ones.

        Args:
          tensors: replacements of `tensors()`, in the same order.

        Returns:
          The metric: (value tensor, update op).
        """
        remaining = iter(tensors)
        flat = [
            next(remaining) if tf.is_tensor(part) else part
            for part in tf.nest.flatten(self.arguments)
        ]
        positional, named = tf.nest.pack_sequence_as(self.arguments, flat)
        return self.function(*positional, **named)


class MetricRecorder:
    """Records calls of metric functions, and finds them by the tensors that the calls returned."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], MetricCall] = {}
        self._returned: list[Any] = []

    def add(self, call: MetricCall) -> tuple[Any, Any]:
        """Record a call, and return tensors that stand for its result.

        Returns:
          (value, update op), like the result of the metric function. Both are scalar zeros. They
          are tensors because model_fn may also use them in a summary.
        """
        pair = (tf.zeros([]), tf.zeros([]))
        # Store calls by the ids of the returned tensors. Keep a reference to the tensors too, so
        # that no later tensor can have the same id.
        self._returned.append(pair)
        self._calls[id(pair[0]), id(pair[1])] = call
        return pair

    def find_calls(self, metric_ops: Mapping[str, Any]) -> dict[str, MetricCall]:
        """Find the recorded calls of a model's eval_metric_ops.

        Args:
          metric_ops: metric name → (value, update op).

        Returns:
          Metric name → call.

        Raises:
          InvalidSetting: a metric does not come directly from a recorded call.
        """
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
    """Make the functions of tf.compat.v1.metrics record their calls and create no ops.

    The functions are replaced in the whole process: enter the context around the call of one
    model_fn only.

    Yields:
      The recorder of the calls.
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
    """Wrap a metric function so that it records its calls."""

    @functools.wraps(function)
    def record(*positional: Any, **named: Any) -> tuple[Any, Any]:
        return recorder.add(MetricCall(function, (positional, named)))

    return record


@dataclass
class HostMetrics:
    """Computes recorded metrics on the host, through TPUEstimatorSpec.eval_metrics.

    Attributes:
      calls: metric name → recorded call.
      num_rows: the batch size of a replica, in rows.
    """

    calls: Mapping[str, MetricCall]
    num_rows: int
    _dtypes: list[Any] = field(default_factory=list)

    def to_eval_metrics(self) -> tuple[Callable[..., Any], list[Any]]:
        """Build the eval_metrics of a TPUEstimatorSpec.

        Returns:
          (metric function, tensors of shape [num_rows, ...]): the function takes these tensors.

        Raises:
          InvalidSetting: a metric uses a tensor that does not have one row per example.
        """
        tensors = [
            self._to_transferable(name, call, tensor)
            for name, call in self.calls.items()
            for tensor in call.tensors()
        ]
        return self._metric_fn, tensors

    def _to_transferable(self, name: str, call: MetricCall, tensor: Any) -> Any:
        """Convert a metric's argument to a tensor [num_rows, ...] that the outfeed supports.

        Raises:
          InvalidSetting: the tensor does not have one row per example.
        """
        tensor = tf.convert_to_tensor(tensor)
        self._dtypes.append(tensor.dtype)
        if tensor.shape.rank == 0 and call.function.__name__ == "mean":
            # Repeat a scalar in each row, because eval_metrics requires a row per example. The mean
            # of equal rows is the scalar.
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
        """Compute the metrics on the host from the transferred tensors, by metric name."""
        remaining = iter(
            [tf.cast(tensor, dtype) for tensor, dtype in zip(tensors, self._dtypes, strict=True)]
        )
        return {
            name: call.replay([next(remaining) for _ in call.tensors()])
            for name, call in self.calls.items()
        }
