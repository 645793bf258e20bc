"""Loads a model into a tf.compat.v1.Session, and runs it there.

Session callables have a tenth of the call overhead of SavedModel signature functions, and only
sessions can run a TPU metagraph.
"""

import dataclasses
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2

from tpuserve import devices, tensorflow_internals
from tpuserve.errors import Code, CodedError, DamagedSavedModel, TpuserveError
from tpuserve.runtime.load_plan import LoadPlan
from tpuserve.runtime.loaded_model import Array, CancellationToken, LoadedModel
from tpuserve.runtime.registry import LoadOptions
from tpuserve.runtime.session import graph_import, run_canceller
from tpuserve.runtime.session.graph_import import GraphHandles
from tpuserve.runtime.session.multi_signature import MultiSignatureRunner
from tpuserve.runtime.session.run_canceller import RunCanceller
from tpuserve.runtime.session.session_plan import SessionPlan
from tpuserve.runtime.session.signature_runner import SignatureRunner, error_summary
from tpuserve.saved_model import op_imports
from tpuserve.saved_model.op_packages import unknown_ops_error
from tpuserve.saved_model.signature import Signature, find_signature

# The attribute that marks a function, or a call of a function, for compilation by XLA.
_MUST_COMPILE = b"_XlaMustCompile"

_xla_lock = threading.Lock()
_has_xla_started = False
# Errors that TensorFlow raises for missing, truncated or changed files.
_UNKNOWN_OP = re.compile(r"Op type not registered '([^']+)'")
_DAMAGE_ERRORS = (
    tf.errors.OpError,
    DecodeError,
    ValueError,
    RuntimeError,
    OSError,
    KeyError,
    TypeError,
)


class SessionModel:
    """A metagraph in a session. It implements the interface `LoadedModel`.

    Args:
      handles: the C API handles of the nodes that the signatures feed and fetch.
    """

    def __init__(self, session: Any, plan: LoadPlan, handles: GraphHandles) -> None:
        session_plan: SessionPlan = plan.runtime_plan
        self.choice = plan.choice
        self.signature_defs = {
            name: meta_graph_pb2.SignatureDef.FromString(serialised)
            for name, serialised in plan.signature_defs.items()
        }
        self.signatures = {
            name: _with_defaults(signature, self.signature_defs[name])
            for name, signature in plan.signatures.items()
        }
        self._session = session
        self._graph = session.graph
        self._handles = handles
        self._canceller = RunCanceller(session, handles) if _is_cancellable(plan) else None
        self._static_cost_signatures = session_plan.static_cost_signatures
        self._checks_sizes = session_plan.checks_sizes
        self._runners = {
            name: self._make_runner(signature, [name])
            for name, signature in self.signatures.items()
        }
        self._multi_runner = MultiSignatureRunner(self.signatures, self._make_runner)
        for runner in self._runners.values():
            runner.warm_up()

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: CancellationToken | None = None,
    ) -> dict[str, Array]:
        """Run one signature in the calling thread.

        The arguments, the result and the errors are those of `LoadedModel.run`.
        """
        runner = self._runners.get(signature_name)
        if runner is None:
            find_signature(self.signatures, signature_name)
            raise AssertionError(signature_name)
        if cancellation is not None:
            cancellation.raise_if_cancelled()
        return runner.run(inputs, output_names, timeout_ms, cancellation)

    def run_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
        cancellation: CancellationToken | None = None,
    ) -> dict[str, dict[str, Array]]:
        """Run several signatures on the same inputs, in one run of the session.

        The arguments, the result and the errors are those of `LoadedModel.run_multi`.
        """
        if cancellation is not None:
            cancellation.raise_if_cancelled()
        return self._multi_runner.run(output_names, inputs, timeout_ms, cancellation)

    def close(self) -> None:
        """Close the session, and free the memory of the variables and the graph."""
        self._session.close()
        # Drop the reference to the session, because even a closed session keeps the variables in
        # memory.
        self._session = None
        for runner in self._runners.values():
            runner.close()
        self._multi_runner.close()
        # Break the reference cycles of the graph, so that its memory is freed at once and not only
        # when the garbage collector runs.
        tensorflow_internals.ops.dismantle_graph(self._graph)

    def _make_runner(self, signature: Signature, names: Sequence[str]) -> SignatureRunner:
        return SignatureRunner(
            self._session,
            signature,
            self._handles.tensor,
            has_static_cost=self._static_cost_signatures.issuperset(names),
            canceller=self._canceller,
            enforces_deadlines=self.choice.device != "TPU",
            checks_sizes=self._checks_sizes,
        )


def load_session_model(
    directory: Path,
    plan: LoadPlan,
    options: LoadOptions,
    make_model: Callable[[Any, LoadPlan, GraphHandles], LoadedModel] = SessionModel,
) -> LoadedModel:
    """Import the graph of a plan, create a session, restore its variables, and initialise it.

    Args:
      make_model: takes the initialised session, the plan, and the C API handles of the nodes that
        the signatures feed and fetch; returns the model.
    """
    session_plan: SessionPlan = plan.runtime_plan
    is_on_tpu = plan.choice.device == "TPU"
    if is_on_tpu and options.initialise_tpu:
        devices.initialise_tpu_system()
    config = tf.compat.v1.ConfigProto.FromString(options.session_config)
    config.allow_soft_placement = True
    run_canceller.add_deadline_pool(config)
    graph = tf.Graph()

    def restore() -> LoadedModel:
        session = tf.compat.v1.Session(graph=graph, config=config)
        try:
            with _limit_initialisation(session, options.timeout_seconds, directory):
                graph_import.initialise_session(session, session_plan)
            return make_model(session, plan, handles)
        except BaseException:
            session.close()
            raise

    try:
        handles = graph_import.import_graph(graph, session_plan)
        serialised_graphs = (segment.content for segment in session_plan.segments)
        if _is_cancellable(plan):
            outputs = {
                spec.name
                for signature in plan.signatures.values()
                for spec in signature.outputs.values()
            }
            run_canceller.add_cancellation_ops(graph, outputs, handles)
        if not is_on_tpu and _uses_xla(serialised_graphs):
            _start_xla_thread_pool(config)
        return options.executor(restore)
    except BaseException as error:
        tensorflow_internals.ops.dismantle_graph(graph)
        if isinstance(error, TpuserveError) or not isinstance(error, _DAMAGE_ERRORS):
            raise
        unknown = _UNKNOWN_OP.search(str(error))
        if unknown:
            ops = Counter([unknown[1]])
            raise unknown_ops_error(directory, ops, op_imports.imported()) from error
        raise DamagedSavedModel(
            f"cannot load {directory}: {error_summary(error)}. Export the model again."
        ) from error


def _is_cancellable(plan: LoadPlan) -> bool:
    """Return whether a run of a model can be cancelled, for example when its client has left."""
    return plan.runtime_plan.has_loop and plan.choice.device != "TPU"


def _with_defaults(signature: Signature, signature_def: Any) -> Signature:
    if not signature_def.defaults:
        return signature
    defaults = {name: tf.make_ndarray(proto) for name, proto in signature_def.defaults.items()}
    return dataclasses.replace(signature, defaults=defaults)


def _uses_xla(serialised_graphs: Iterable[bytes]) -> bool:
    return any(_MUST_COMPILE in graph for graph in serialised_graphs)


def _start_xla_thread_pool(config: Any) -> None:
    """Start XLA's thread pool at the calling thread's priority, unless this was done before."""
    global _has_xla_started
    with _xla_lock:
        if _has_xla_started:
            return
        graph = tf.Graph()
        with graph.as_default():
            placeholder = tf.compat.v1.placeholder(tf.float32, [1])
            # Use a placeholder as the input of the program that XLA compiles. TensorFlow would fold
            # a computation on a constant, and XLA would compile nothing.
            doubled = tf.function(_double, jit_compile=True)(placeholder)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(doubled, {placeholder: [1.0]})
        _has_xla_started = True


def _double(tensor: Any) -> Any:
    return tensor + tensor


@contextmanager
def _limit_initialisation(session: Any, seconds: float, directory: Path) -> Iterator[None]:
    """Close a session, which is the only way to stop its run, if a `with` body takes too long."""
    if not seconds:
        yield
        return
    lock = threading.Lock()
    is_over = is_late = False

    def close() -> None:
        nonlocal is_late
        with lock:
            if not is_over:
                is_late = True
                session.close()

    timer = threading.Timer(seconds, close)
    timer.daemon = True
    timer.start()
    cause: Exception | None = None
    try:
        yield
    except Exception as error:
        cause = error
    finally:
        timer.cancel()
        with lock:
            is_over = True
    if is_late:
        raise CodedError(
            f"the initialisation of {directory} has not ended in {seconds:g} s. Export the model "
            f"without a loop that may never end, or raise --load_timeout_seconds.",
            Code.DEADLINE_EXCEEDED,
        ) from cause
    if cause is not None:
        raise cause
