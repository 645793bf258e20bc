"""Loads and runs a model whose TPU computations run on jax's PJRT devices.

Each computation is an XLA cluster: a function of the graph that XLA compiles as a whole.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from tpuserve.devices import jax_client
from tpuserve.errors import (
    DamagedSavedModel,
    DeadlineExceeded,
    InvalidInput,
    ModelExecutionError,
    Unavailable,
    UnsupportedModel,
    UnsupportedOnTpu,
)
from tpuserve.graph.checkpoint_keys import variable_name
from tpuserve.graph.graph_walk import reach_nodes
from tpuserve.graph.state_writes import WriteFinder
from tpuserve.pjrt.cluster_program import ClusterProgram
from tpuserve.pjrt.device_core import Array
from tpuserve.pjrt.executable_cache import ExecutableCache
from tpuserve.runtime.cluster_calls import ClusterCalls, uses_variables
from tpuserve.runtime.load_plan import LoadPlan
from tpuserve.runtime.loaded_model import CancellationToken, LoadedModel
from tpuserve.runtime.pjrt_runtime import PjrtPlan
from tpuserve.runtime.pure_signatures import PureSignature, find_pure_signature
from tpuserve.runtime.registry import LoadOptions
from tpuserve.runtime.session import session_model
from tpuserve.runtime.session.graph_import import GraphHandles
from tpuserve.runtime.session.session_model import SessionModel
from tpuserve.runtime.session.session_plan import make_session_plan
from tpuserve.runtime.session.signature_runner import TIMED_OUT, SignatureRunner
from tpuserve.saved_model.batch_functions import allowed_batch_sizes
from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.select import MetaGraphSelection
from tpuserve.stablehlo.abstract_tensor import AbstractTensor, Shape
from tpuserve.stablehlo.cluster_finder import ClusterFinder, XlaCluster

_VARIABLES = ("variables", "variables")
# The maximum number of runs with a deadline that one model executes at the same time; further runs
# wait.
_DEADLINE_THREADS = 2 * (os.cpu_count() or 1)

TraceSignature: TypeAlias = Callable[[Signature, int | None, int | None], Sequence[XlaCluster]]
"""A function that returns the XLA clusters that a signature runs, with their argument shapes."""

CompileClusters: TypeAlias = Callable[
    [ClusterProgram, TraceSignature, Any, Mapping[str, Signature]], None
]
"""A function that compiles clusters of a model during the load."""


class ClusterRunner(SignatureRunner):
    """Runs a signature that consists of a single XLA cluster, without a session.

    XLA cannot stop a run. A run that may miss its deadline therefore takes place in another thread.

    Args:
      pure: the function name of the cluster, and the inputs and outputs of the signature that
        are its arguments and results.
    """

    def __init__(
        self,
        program: ClusterProgram,
        pure: PureSignature,
        signature: Signature,
        threads: ThreadPoolExecutor,
    ) -> None:
        # Set has_static_cost: all shapes in an XLA program are static, so the run time depends only
        # on the shapes of the inputs.
        super().__init__(None, signature, has_static_cost=True, enforces_deadlines=True)
        self._program = program
        self._pure = pure
        self._threads = threads

    def warm_up(self) -> None:
        """Create the function that computes all outputs, so that the first request need not wait.

        Nothing is compiled here, because the load has compiled the signature.
        """
        self._make_callable(self._all_outputs)

    def close(self) -> None:
        """Do nothing: the ClusterProgram, which the model closes, refuses later runs."""

    def _run_in_deadline_pool(
        self,
        outputs: Sequence[str],
        feeds: list[Any],
        timeout_ms: float | None,
        cancellation: CancellationToken | None = None,
    ) -> Any:
        function = self._make_callable(tuple(outputs))
        if timeout_ms is None:
            return function(*feeds)
        if timeout_ms <= 0:
            raise DeadlineExceeded(TIMED_OUT)
        try:
            future = self._threads.submit(function, *feeds)
        except RuntimeError as error:
            if "shutdown" in str(error):
                raise ModelExecutionError("the model is closed") from error
            raise Unavailable(
                f"the run has no thread: {error}. Send the request again later, or raise the limit "
                f"of threads of the server's container."
            ) from error
        try:
            return future.result(timeout_ms / 1000)
        except FutureTimeoutError:
            future.cancel()
            raise DeadlineExceeded(TIMED_OUT) from None
        except CancelledError:
            raise ModelExecutionError("the model is closed") from None

    def _make_callable(self, outputs: tuple[str, ...]) -> Callable[..., Sequence[Array]]:
        self._signature.check_outputs(outputs)
        pure = self._pure
        # The base class passes the inputs sorted by alias. Find the position of each argument of
        # the cluster among them.
        aliases = sorted(self._signature.inputs)
        positions = [aliases.index(alias) for alias in pure.aliases]
        indices = [pure.results[alias] for alias in outputs]

        def call(*feeds: Array) -> Sequence[Array]:
            results = self._program.run(pure.function, [feeds[number] for number in positions])
            return [results[index] for index in indices]

        self._callables[outputs] = call
        return call


class PjrtModel(SessionModel):
    """A TPU metagraph in memory: XLA clusters run on PJRT devices, the other ops in a session.

    Args:
      handles: the C API handles of the nodes that the signatures feed and fetch.
      calls: the object that created the ops by which the session's graph calls the clusters.
        The model keeps a reference to it, because these ops work only while it exists.
    """

    def __init__(
        self,
        session: Any,
        plan: LoadPlan,
        handles: GraphHandles,
        *,
        choice: MetaGraphSelection,
        program: ClusterProgram,
        calls: ClusterCalls,
        pure_signatures: Mapping[str, PureSignature],
    ) -> None:
        self._program = program
        self._calls = calls
        self._pure_signatures = pure_signatures
        self._threads = ThreadPoolExecutor(_DEADLINE_THREADS, "pjrt-deadline")
        super().__init__(session, plan, handles)
        self.choice = choice

    def close(self) -> None:
        """Free the memory on the devices, and close the session."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._program.close()
        super().close()

    def _make_runner(self, signature: Signature, names: Sequence[str]) -> SignatureRunner:
        pure = self._pure_signatures.get(names[0]) if len(names) == 1 else None
        if pure is not None:
            return ClusterRunner(self._program, pure, signature, self._threads)
        return super()._make_runner(signature, names)


def load_pjrt_model(
    directory: Path,
    plan: LoadPlan,
    options: LoadOptions,
    *,
    max_devices: int | None = None,
    forbids_endless_loops: bool = False,
    make_tracer: Callable[[Any], TraceSignature] | None = None,
    compile_clusters: CompileClusters | None = None,
) -> LoadedModel:
    """Compile the clusters of a model for the PJRT devices, and load its other ops into a session.

    Args:
      max_devices: the largest number of devices to use; None for all.
      forbids_endless_loops: whether to refuse a cluster with a loop whose number of iterations XLA
        does not know. Such a loop may never end, and cannot be stopped.
      make_tracer: takes the lowered GraphDef and returns the function that finds the clusters of a
        signature. None uses a function that infers the shapes of all tensors of the graph.
      compile_clusters: compiles clusters before the function returns. None compiles them for the
        batch sizes described above.
    """
    pjrt_plan: PjrtPlan = plan.runtime_plan
    devices = jax_client.list_devices(plan.choice.device.lower())[:max_devices]
    meta_graph = meta_graph_pb2.MetaGraphDef.FromString(pjrt_plan.meta_graph)
    lowered = type(meta_graph.graph_def)()
    lowered.CopyFrom(meta_graph.graph_def)
    trace = (make_tracer or _make_tracer)(lowered)
    clusters = _find_clusters(trace, plan.signatures)
    _check_writes(lowered, clusters)
    read_variable = _make_variable_reader(directory, pjrt_plan.checkpoint_keys)
    program = ClusterProgram(
        lowered,
        clusters,
        devices,
        read_variable,
        cache=ExecutableCache(options.cache_directory),
        forbids_endless_loops=forbids_endless_loops,
    )
    try:
        calls = ClusterCalls(clusters, program.run)
        calls.replace_in(meta_graph.graph_def)
        _check_host_writes(meta_graph, plan.signatures, clusters.values())
        # Plan the session for the CPU, because the ops outside of the XLA clusters run on the CPU.
        host_choice = dataclasses.replace(plan.choice, device="CPU", lowered=False)
        session_plan = make_session_plan(meta_graph, directory, host_choice, plan.signatures)
        if not uses_variables(meta_graph.graph_def):
            # Do not restore variables into the session: only the clusters use variables, from the
            # memory of the devices.
            session_plan = dataclasses.replace(session_plan, restore_op="")
        pure_signatures = _find_pure_signatures(lowered, plan.signatures, clusters)

        def make_model(session: Any, host_plan: LoadPlan, handles: GraphHandles) -> LoadedModel:
            (compile_clusters or _compile)(program, trace, lowered, plan.signatures)
            return PjrtModel(
                session,
                host_plan,
                handles,
                choice=plan.choice,
                program=program,
                calls=calls,
                pure_signatures=pure_signatures,
            )

        return session_model.load_session_model(
            directory,
            dataclasses.replace(plan, choice=host_choice, runtime_plan=session_plan),
            options,
            make_model,
        )
    except BaseException:
        program.close()
        raise


def _compile(
    program: ClusterProgram,
    trace: TraceSignature,
    graph: Any,
    signatures: Mapping[str, Signature],
) -> None:
    for rows in allowed_batch_sizes(graph) or (1,):
        for signature in signatures.values():
            for cluster in trace(signature, rows, None):
                shapes = [tensor.shape for tensor in cluster.arguments if tensor.variable is None]
                if all(shape is not None and None not in shape for shape in shapes):
                    program.compile(cluster)


def _find_clusters(
    trace: TraceSignature, signatures: Mapping[str, Signature]
) -> dict[str, XlaCluster]:
    """Return the clusters that the signatures run: function name → cluster."""
    clusters: dict[str, XlaCluster] = {}
    for signature in signatures.values():
        for cluster in trace(signature, None, None):
            other = clusters.setdefault(cluster.function, cluster)
            if _variables(other) != _variables(cluster):
                raise UnsupportedModel(
                    f"the computation {cluster.function} runs with different variables in several "
                    f"signatures, which the pjrt runtime does not support. Export the signatures "
                    f"as separate models."
                )
    return clusters


def _check_writes(graph: Any, clusters: Iterable[str]) -> None:
    """Raise UnsupportedOnTpu if a cluster writes: each device has copies of the variables."""
    functions = {function.signature.name: function for function in graph.library.function}
    writes = WriteFinder(functions)
    for name in clusters:
        write = writes.in_nodes(functions[name].node_def)
        if write is not None:
            raise UnsupportedOnTpu(
                f"the computation {name} {write}. Export a model whose signatures only read "
                f"variables."
            )


def _check_host_writes(
    meta_graph: Any, signatures: Mapping[str, Signature], clusters: Iterable[XlaCluster]
) -> None:
    """Raise UnsupportedOnTpu if the host updates a variable of which the devices have copies."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    copied = {spec.name for cluster in clusters for spec in _variables(cluster) if spec is not None}
    for name, signature in signatures.items():
        fetches = [spec.name for spec in signature.outputs.values()]
        feeds = frozenset(spec.name for spec in signature.inputs.values())
        reached = reach_nodes(nodes, fetches, feeds) if signature.write is not None else ()
        used = (variable_name(nodes[node]) for node in reached if nodes[node].op == "VarHandleOp")
        shared = sorted(copied.intersection(used))
        if shared:
            raise UnsupportedOnTpu(
                f"signature {name!r} {signature.write} on the host, and the devices have copies of "
                f"the variable {shared[0]!r}. Serve {{serve}}, or convert no signature that reads "
                f"this variable."
            )


def open_shape(spec: TensorSpec, rows: int | None, other_size: int | None) -> Shape:
    """Return the shape of an input, with sizes for the dimensions that the signature leaves open.

    Args:
      spec: the name, dtype and shape of the input in the signature.
      rows: the size to use if the first dimension, the batch, is open; None leaves it open.
      other_size: the size of all other open dimensions; None leaves them open.

    Returns:
      The shape; None if the rank is unknown.
    """
    if not spec.shape:
        return spec.shape
    sizes = (rows, *(other_size for _ in spec.shape[1:]))
    return tuple(
        open_size if size is None else size
        for size, open_size in zip(spec.shape, sizes, strict=True)
    )


def _make_tracer(graph: Any) -> TraceSignature:
    finder = ClusterFinder(graph)

    def trace(
        signature: Signature, rows: int | None, other_size: int | None
    ) -> Sequence[XlaCluster]:
        count = len(finder.clusters)
        feeds = {
            spec.name: AbstractTensor(tf.as_dtype(spec.dtype), open_shape(spec, rows, other_size))
            for spec in signature.inputs.values()
        }
        try:
            finder.trace(feeds, [spec.name for spec in signature.outputs.values()])
        except InvalidInput:
            # The signature does not accept this batch size, so there is nothing to compile.
            return []
        return finder.clusters[count:]

    return trace


def _variables(cluster: XlaCluster) -> list[Any]:
    return [tensor.variable for tensor in cluster.arguments]


def _find_pure_signatures(
    graph: Any, signatures: Mapping[str, Signature], clusters: Mapping[str, XlaCluster]
) -> dict[str, PureSignature]:
    pure_signatures = {}
    for name, signature in signatures.items():
        pure = find_pure_signature(graph, signature, clusters)
        if pure is not None:
            pure_signatures[name] = pure
    return pure_signatures


def _make_variable_reader(directory: Path, keys: Mapping[str, str]) -> Callable[[str], Array]:
    """Return a function that reads a variable's value from the checkpoint of a SavedModel."""
    prefix = str(directory.joinpath(*_VARIABLES))
    reader = functools.cache(lambda: tf.train.load_checkpoint(prefix))

    def read(name: str) -> Array:
        try:
            value: Array = reader().get_tensor(keys[name])
        except (KeyError, ValueError, tf.errors.OpError) as error:
            raise DamagedSavedModel(
                f"cannot load {directory}: its checkpoint does not have the whole variable "
                f"{name!r}. Export the model again."
            ) from error
        return value

    return read
