"""Runs one signature of a metagraph in a session."""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tpuserve import tensorflow_internals
from tpuserve.errors import (
    Code,
    DeadlineExceeded,
    InvalidTensor,
    ModelExecutionError,
    TpuserveError,
)
from tpuserve.runtime.loaded_model import Array, CancellationToken
from tpuserve.runtime.session import run_canceller
from tpuserve.runtime.session.rank_check import RankCheck
from tpuserve.runtime.session.run_canceller import RunCanceller
from tpuserve.saved_model import dtypes
from tpuserve.saved_model.signature import Signature
from tpuserve.stablehlo import xla_errors
from tpuserve.tensorflow_internals import c_api

_HEADINGS = (
    "Graph execution error",
    "Detected at node",
    "Node:",
    "File ",
    "Restoring from checkpoint failed",
)
# How TensorFlow names the node that failed.
_NODE = "[[{{node "
# TensorFlow's message for an exceeded deadline, which is also used for deadlines that are checked
# in Python.
TIMED_OUT = "Timed out waiting for notification"
_LONG_MS = 3_600_000
# The largest number of session callables, and of shapes that have run, in a SignatureRunner. Both
# must be bounded, because clients choose outputs and shapes.
_MAX_CACHED = 64


class SignatureRunner:
    """Runs one signature in a session; thread-safe.

    A run takes place in the calling thread or in a thread pool. The calling thread is faster for a
    small model, but a run there cannot be stopped.

    Args:
      session: a tf.compat.v1.Session with the graph of the signature; None for a subclass that
        runs the signature without one.
      get_tensor: takes the name of a tensor and returns its TF_Output. None looks the tensor up
        in the Python graph of the session.
      has_static_cost: whether the run time depends only on the shapes of the inputs.
      canceller: stops runs that may never end; None for a graph without a loop.
      enforces_deadlines: whether to stop a run at its deadline; False where runs must not be
        stopped, as on a TPU.
    """

    def __init__(
        self,
        session: Any,
        signature: Signature,
        get_tensor: Callable[[str], Any] | None = None,
        *,
        has_static_cost: bool = False,
        canceller: RunCanceller | None = None,
        enforces_deadlines: bool = True,
        checks_sizes: bool = False,
    ) -> None:
        self._session = session
        self._signature = signature
        self._get_tensor = get_tensor or self._python_tensor
        self._enforces_deadlines = enforces_deadlines
        self._canceller = None if has_static_cost else canceller
        self._aliases = sorted(signature.inputs)
        self._types = [
            (alias, _numpy_type(signature.inputs[alias].dtype)) for alias in self._aliases
        ]
        self._names = signature.inputs.keys()
        shapes = [signature.inputs[alias].shape for alias in self._aliases]
        self._ranks = [None if shape is None else len(shape) for shape in shapes]
        # Without a session, XLA refuses other ranks itself.
        self._rank_check = None
        if session is not None:
            self._rank_check = RankCheck(session.graph, signature, checks_sizes=checks_sizes)
        if self._rank_check and self._rank_check.checks_sizes:
            self._ranks = []
        self._all_outputs = tuple(sorted(signature.outputs))
        # A session cannot fetch what it is fed: the value of such an output is that of its input.
        fed = {spec.name: alias for alias, spec in signature.inputs.items() if spec.name}
        self._passed_through = {
            alias: fed[spec.name] for alias, spec in signature.outputs.items() if spec.name in fed
        }
        self._has_string_outputs = any(
            spec.dtype == "string" for spec in signature.outputs.values()
        )
        self._callables: dict[tuple[str, ...], Any] = {}
        # With string inputs, the run time also depends on the lengths of the strings, and not only
        # on the shapes.
        has_strings = any(spec.dtype == "string" for spec in signature.inputs.values())
        self._has_static_cost = has_static_cost and not has_strings
        # The outputs and input shapes of runs that have met their deadlines.
        self._known_runs: set[tuple[Any, ...]] = set()
        self._lock = threading.Lock()

    def run(
        self,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None,
        timeout_ms: float | None,
        cancellation: CancellationToken | None = None,
    ) -> dict[str, Array]:
        """Run the signature.

        The arguments, the result and the errors are those of `LoadedModel.run`.
        """
        if inputs.keys() != self._names:
            inputs = self._signature.complete(inputs)
        feeds = []
        for alias, expected_type in self._types:
            array = inputs[alias]
            if array.dtype != expected_type:
                self._check_type(array, alias)
            feeds.append(array)
        # Sort the names of the outputs, so that requests that name the same outputs in different
        # orders share a session callable.
        outputs = self._all_outputs if output_names is None else tuple(sorted(output_names))
        if self._rank_check and [array.ndim for array in feeds] != self._ranks:
            self._rank_check.check(dict(zip(self._aliases, feeds, strict=True)))
        passed = {}
        if self._passed_through:
            sources = self._passed_through
            passed = {alias: inputs[sources[alias]] for alias in outputs if alias in sources}
            outputs = self._without_passed(outputs)
            if not outputs:
                return passed
        function = self._callables.get(outputs) or self._make_callable(outputs)
        try:
            if self._canceller is not None and cancellation is not None:
                results = self._run_in_deadline_pool(outputs, feeds, timeout_ms, cancellation)
            elif timeout_ms is None or not self._enforces_deadlines:
                results = function(*feeds)
            else:
                results = self._run_with_deadline(function, outputs, feeds, timeout_ms)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            text = error_summary(error)
            if xla_errors.UNSUPPORTED in text or _NO_KERNEL in text:
                raise ModelExecutionError(text) from error
            shapes = self._signature.describe_other_shapes(inputs)
            raise InvalidTensor("; ".join(filter(None, [text, shapes]))) from error
        except tf.errors.DeadlineExceededError as error:
            raise DeadlineExceeded(error_summary(error)) from error
        except tf.errors.OpError as error:
            raise ModelExecutionError(error_summary(error), Code(error.error_code)) from error
        if self._has_string_outputs:
            results = map(_to_array, results)
        return passed | dict(zip(outputs, results, strict=True))

    def warm_up(self) -> None:
        """Create the session callable for all outputs, so that the first request need not wait.

        Errors are ignored here, because the first request reports them.
        """
        with contextlib.suppress(tf.errors.OpError, ValueError, TpuserveError):
            outputs = self._without_passed(self._all_outputs)
            self._make_callable(outputs)
            if self._enforces_deadlines and self._types:
                # Runs with a deadline use a thread pool of their own, and TensorFlow prepares them
                # separately.
                invalid = [
                    np.array([0], np.float32) if dtype.hasobject else np.array([b""], object)
                    for _, dtype in self._types
                ]
                self._run_in_deadline_pool(outputs, invalid, _LONG_MS)

    def close(self) -> None:
        """Release the session. Later calls of `run` raise ModelExecutionError."""
        self._callables = {}
        self._session = None

    def _without_passed(self, outputs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(alias for alias in outputs if alias not in self._passed_through)

    def _run_with_deadline(
        self,
        function: Callable[..., Any],
        outputs: Sequence[str],
        feeds: list[Any],
        timeout_ms: float,
    ) -> Any:
        if not self._has_static_cost:
            return self._run_in_deadline_pool(outputs, feeds, timeout_ms)
        key = (outputs, *[array.shape for array in feeds])
        if key in self._known_runs and timeout_ms > 0:
            return function(*feeds)
        results = self._run_in_deadline_pool(outputs, feeds, timeout_ms)
        if len(self._known_runs) >= _MAX_CACHED:
            self._known_runs = set()
        self._known_runs.add(key)
        return results

    def _run_in_deadline_pool(
        self,
        outputs: Sequence[str],
        feeds: list[Any],
        timeout_ms: float | None,
        cancellation: CancellationToken | None = None,
    ) -> Any:
        if timeout_ms is not None and timeout_ms <= 0:
            raise DeadlineExceeded(TIMED_OUT)
        options = run_canceller.run_options(self._session, timeout_ms)
        buffer = c_api.TF_NewBufferFromString(options)
        signature = self._signature
        feed_dict = {
            self._get_tensor(signature.inputs[alias].name): np.asarray(array)
            for alias, array in zip(self._aliases, feeds, strict=True)
        }
        names = [signature.outputs[alias].name for alias in outputs]
        fetches = [self._get_tensor(name) for name in names]

        def run_session(more_feeds: Mapping[Any, Any], targets: Sequence[Any]) -> Any:
            feeds = {**feed_dict, **more_feeds}
            return tensorflow_internals.run_session(self._session, buffer, feeds, fetches, targets)

        try:
            if self._canceller is None:
                return run_session({}, ())
            # Use the canceller even for a run that nobody cancels, so that all runs have the same
            # targets: TensorFlow prepares the graph once for each set of targets, and the canceller
            # adds ops to the targets.
            return self._canceller.run(run_session, names, cancellation)
        finally:
            c_api.TF_DeleteBuffer(buffer)

    def _python_tensor(self, name: str) -> Any:
        return tensorflow_internals.get_tensor_output(self._session.graph.get_tensor_by_name(name))

    def _make_callable(self, outputs: tuple[str, ...]) -> Any:
        signature = self._signature
        signature.check_outputs(outputs)
        signature.check_single_tensors(outputs)
        session = self._session
        if session is None:
            raise ModelExecutionError("the model is closed")
        options = config_pb2.CallableOptions()
        options.feed.extend(signature.inputs[alias].name for alias in self._aliases)
        options.fetch.extend(signature.outputs[alias].name for alias in outputs)
        # The inter-op thread pool -1 means that the ops run in the calling thread. This is fastest
        # for a small model.
        options.run_options.inter_op_thread_pool = -1
        with self._lock:
            function = self._callables.get(outputs)
            if function is None:
                if len(self._callables) >= _MAX_CACHED:
                    self._callables = {}
                try:
                    function = tensorflow_internals.make_session_callable(session, options)
                except (tf.errors.OpError, RuntimeError) as error:
                    raise ModelExecutionError(error_summary(error)) from error
                self._callables[outputs] = function
        return function

    def _check_type(self, array: Array, alias: str) -> None:
        specs = self._signature.inputs
        expected = specs[alias].dtype
        actual = tf.as_dtype(array.dtype).name
        if actual != expected:
            position = sorted(spec.name for spec in specs.values()).index(specs[alias].name)
            raise InvalidTensor(
                f"Expects arg[{position}] to be {dtypes.runtime_name(expected)} but "
                f"{dtypes.runtime_name(actual)} is provided"
            )


# The beginning of TensorFlow's error about an op that has no kernel for a dtype on a device. The
# class of the error suggests an invalid input, but the model is the cause.
_NO_KERNEL = "No OpKernel was registered to support Op"
_BFLOAT16 = "DT_BFLOAT16"
_KERNEL_ADVICE = (
    "XLA has kernels of bfloat16 for more ops than TensorFlow has on a CPU: serve with "
    '--engine=xla, or load with runtime="xla". Otherwise export this op in float32'
)


def error_summary(error: Exception) -> str:
    """Return the line of a TensorFlow error that states the cause, and the node that failed."""
    # TensorFlow's messages have headings, then the cause, then a stack of nodes. So the cause is
    # the first line that is not a heading.
    text = getattr(error, "message", None) or str(error)
    lines = [line.strip() for line in text.splitlines()]
    causes = [line for line in lines if line and not line.startswith(_HEADINGS)]
    cause = causes[0].rstrip(".") if causes else type(error).__name__
    if _NO_KERNEL in cause and _BFLOAT16 in cause:
        return f"{cause}. {_KERNEL_ADVICE}"
    nodes = [line for line in lines if line.startswith(_NODE)]
    return " ".join([cause, *nodes[:1]])


def _to_array(result: Any) -> Any:
    return np.array(result, object) if isinstance(result, bytes) else result


def _numpy_type(name: str) -> Any:
    dtype = tf.as_dtype(name)
    return np.dtype(object) if dtype == tf.string else np.dtype(dtype.as_numpy_dtype)
