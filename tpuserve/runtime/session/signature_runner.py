"""One signature of a loaded metagraph, as a function from arrays to arrays."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session

from tpuserve.errors import (
    DeadlineExceeded,
    InvalidTensor,
    ModelExecutionError,
    TpuserveError,
)
from tpuserve.runtime import xla_errors
from tpuserve.runtime.session import deadline_pool
from tpuserve.saved_model import dtypes
from tpuserve.saved_model.signature import Signature

Array: TypeAlias = np.ndarray[Any, Any]

_HEADINGS = (
    "Graph execution error",
    "Detected at node",
    "Node:",
    "File ",
    "Restoring from checkpoint failed",
)
# What the runtime says when a time is over.
_TIMED_OUT = "Timed out waiting for notification"
# How many times longer than its last run a request must have for a run that nothing can stop.
_MARGIN = 20
_LONG_MS = 3_600_000
# Choices of outputs, and shapes of inputs, that are kept; clients choose them.
_MOST_KEPT = 64


class SignatureRunner:
    """Runs one signature in a session; safe to use from many threads.

    Without a deadline a run stays in the calling thread: the hand-over to a pool costs more than
    a small model does. Such a run cannot be stopped. So one with a deadline goes to the pool,
    unless its length is known: the computation is a bounded one, inputs of the same shapes
    have run before, and the time given is many times what they took.
    """

    def __init__(
        self,
        session: Any,
        signature: Signature,
        tensor: Callable[[str], Any] | None = None,
        *,
        is_bounded: bool = False,
        keeps_deadlines: bool = True,
    ) -> None:
        """Takes a session with the graph of the signature.

        Args:
          tensor: the name of a tensor → what the runtime knows it by; None where Python knows
            the graph.
          is_bounded: see `tpuserve.graph.static_cost`.
          keeps_deadlines: False where a run must not be stopped, as on a TPU.
        """
        self._session = session
        self._signature = signature
        self._tensor = tensor or self._known_tensor
        self._keeps_deadlines = keeps_deadlines
        self._aliases = sorted(signature.inputs)
        self._types = [
            (alias, _numpy_type(signature.inputs[alias].dtype)) for alias in self._aliases
        ]
        self._names = signature.inputs.keys()
        self._all_outputs = tuple(sorted(signature.outputs))
        self._callables: dict[tuple[str, ...], Any] = {}
        # Strings of one shape may be of any length.
        has_strings = any(each.dtype == "string" for each in signature.inputs.values())
        self._is_bounded = is_bounded and not has_strings
        self._seconds: dict[tuple[Any, ...], float] = {}
        self._lock = threading.Lock()

    def run(
        self,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None,
        timeout_ms: float | None,
    ) -> dict[str, Array]:
        """The outputs for some inputs; see `LoadedModel.run`."""
        if inputs.keys() != self._names:
            inputs = self._signature.complete(inputs)
        feeds = []
        for alias, wanted_type in self._types:
            array = inputs[alias]
            if array.dtype != wanted_type:
                self._check_type(array, alias)
            feeds.append(array)
        # Sorted, so that an order of names does not make a callable of its own.
        wanted = self._all_outputs if output_names is None else tuple(sorted(output_names))
        function = self._callables.get(wanted) or self._make(wanted)
        try:
            if timeout_ms is None or not self._keeps_deadlines:
                results = function(*feeds)
            else:
                results = self._run_in_time(function, wanted, feeds, timeout_ms)
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, ValueError) as error:
            text = error_summary(error)
            if xla_errors.UNSUPPORTED in text:
                raise ModelExecutionError(text) from error
            raise InvalidTensor(text) from error
        except tf.errors.DeadlineExceededError as error:
            raise DeadlineExceeded(error_summary(error)) from error
        except tf.errors.OpError as error:
            raise ModelExecutionError(error_summary(error)) from error
        return dict(zip(wanted, results, strict=True))

    def warm_up(self) -> None:
        """Makes what the first request for all outputs would wait for.

        What cannot be made is left for a request to be told.
        """
        with contextlib.suppress(tf.errors.OpError, ValueError, TpuserveError):
            self._make(self._all_outputs)
            if self._keeps_deadlines and self._types:
                # Refused for its types once all is made, so nothing of the graph is run.
                wrong = [
                    np.array([0], np.float32) if kind.hasobject else np.array([b""], object)
                    for _, kind in self._types
                ]
                self._run_watched(self._all_outputs, wrong, _LONG_MS)

    def close(self) -> None:
        """Lets go of the session; `run` fails from here on."""
        self._callables = {}
        self._session = None

    def _run_in_time(
        self, function: Callable[..., Any], wanted: Sequence[str], feeds: list[Any], time_ms: float
    ) -> Any:
        if time_ms <= 0:
            raise DeadlineExceeded(_TIMED_OUT)
        if not self._is_bounded:
            return self._run_watched(wanted, feeds, time_ms)
        key = (wanted, *[each.shape for each in feeds])
        last = self._seconds.get(key)
        begin = time.perf_counter()
        if last is not None and last * 1000 * _MARGIN < time_ms:
            results = function(*feeds)
        else:
            results = self._run_watched(wanted, feeds, time_ms)
        if last is None and len(self._seconds) >= _MOST_KEPT:
            self._seconds = {}
        self._seconds[key] = time.perf_counter() - begin
        return results

    def _run_watched(self, wanted: Sequence[str], feeds: list[Any], time_ms: float) -> Any:
        options = deadline_pool.run_options(self._session, time_ms)
        buffer = pywrap_tf_session.TF_NewBufferFromString(options)
        inputs, outputs = self._signature.inputs, self._signature.outputs
        fed = {
            self._tensor(inputs[alias].name): np.asarray(array)
            for alias, array in zip(self._aliases, feeds, strict=True)
        }
        fetched = [self._tensor(outputs[each].name) for each in wanted]
        try:
            return self._session._call_tf_sessionrun(buffer, fed, fetched, [], None)
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)

    def _known_tensor(self, name: str) -> Any:
        return self._session.graph.get_tensor_by_name(name)._as_tf_output()

    def _make(self, wanted: tuple[str, ...]) -> Any:
        signature = self._signature
        signature.check_outputs(wanted)
        session = self._session
        if session is None:
            raise ModelExecutionError("the model is closed")
        options = config_pb2.CallableOptions()
        options.feed.extend(signature.inputs[each].name for each in self._aliases)
        options.fetch.extend(signature.outputs[each].name for each in wanted)
        # -1 runs the graph in the calling thread.
        options.run_options.inter_op_thread_pool = -1
        with self._lock:
            found = self._callables.get(wanted)
            if found is None:
                if len(self._callables) >= _MOST_KEPT:
                    self._callables = {}
                try:
                    found = session._make_callable_from_options(options)
                except (tf.errors.OpError, RuntimeError) as error:
                    raise ModelExecutionError(error_summary(error)) from error
                self._callables[wanted] = found
        return found

    def _check_type(self, array: Array, alias: str) -> None:
        specs = self._signature.inputs
        expected = specs[alias].dtype
        actual = tf.as_dtype(array.dtype).name
        if actual != expected:
            position = sorted(each.name for each in specs.values()).index(specs[alias].name)
            raise InvalidTensor(
                f"Expects arg[{position}] to be {dtypes.runtime_name(expected)} but "
                f"{dtypes.runtime_name(actual)} is provided"
            )


def error_summary(error: Exception) -> str:
    """The one line of an error of the runtime that says what is wrong."""
    # Around it stand the runtime's headings and its stack of nodes.
    text = getattr(error, "message", None) or str(error)
    lines = [line.strip() for line in text.splitlines()]
    causes = [line for line in lines if line and not line.startswith(_HEADINGS)]
    return causes[0].rstrip(".") if causes else type(error).__name__


def _numpy_type(name: str) -> Any:
    kind = tf.as_dtype(name)
    return np.dtype(object) if kind == tf.string else np.dtype(kind.as_numpy_dtype)
