"""Loads a CPU metagraph whose signatures XLA compiles as a whole."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve.errors import DeadlineExceeded, UnsupportedModel, UnsupportedOnTpu
from tpuserve.graph.checkpoint_keys import variable_name
from tpuserve.pjrt.cluster_program import ClusterProgram
from tpuserve.runtime.load_plan import LoadPlan
from tpuserve.runtime.loaded_model import CancellationToken, LoadedModel
from tpuserve.runtime.pjrt.pjrt_model import (
    ClusterRunner,
    PjrtModel,
    TraceSignature,
    load_pjrt_model,
    open_shape,
)
from tpuserve.runtime.pjrt.pure_signatures import PureSignature
from tpuserve.runtime.registry import LoadOptions
from tpuserve.runtime.session.signature_runner import TIMED_OUT, SignatureRunner
from tpuserve.runtime.xla.xla_runtime import XlaPlan
from tpuserve.saved_model.signature import Signature
from tpuserve.stablehlo.abstract_tensor import AbstractTensor, VariableSpec, shape_from_proto
from tpuserve.stablehlo.cluster_finder import XlaCluster

# Sizes that are tried for the dimensions that a signature leaves open besides the first, such as
# the length of a sequence, until XLA compiles the signature.
_OTHER_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# The number of runs with a deadline that one model makes at the same time; further runs wait.
_DEADLINE_THREADS = 2 * (os.cpu_count() or 1)


class XlaRunner(ClusterRunner):
    """Runs a signature on the CPU, and stops waiting at the deadline.

    XLA cannot stop a run. The run ends by itself, in a thread of its own; its result is dropped.
    """

    def __init__(
        self,
        program: ClusterProgram,
        pure: PureSignature,
        signature: Signature,
        threads: ThreadPoolExecutor,
    ) -> None:
        """Initialise the runner.

        Args:
          program: runs the clusters of the model.
          pure: the cluster, and how its arguments and results belong to the signature.
          signature: the signature.
          threads: the threads of runs whose callers have a deadline.
        """
        super().__init__(program, pure, signature, enforces_deadlines=True)
        self._threads = threads

    def warm_up(self) -> None:
        """Create the callable for all outputs. The load has compiled the signature."""
        self._make_callable(self._all_outputs)

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
        future = self._threads.submit(function, *feeds)
        try:
            return future.result(timeout_ms / 1000)
        except FutureTimeoutError:
            future.cancel()
            raise DeadlineExceeded(TIMED_OUT) from None


class XlaModel(PjrtModel):
    """A CPU metagraph, each signature of which is one XLA program."""

    def __init__(self, *arguments: Any, **named_arguments: Any) -> None:
        """Initialise the model; see `PjrtModel`."""
        self._threads = ThreadPoolExecutor(_DEADLINE_THREADS, "xla-deadline")
        super().__init__(*arguments, **named_arguments)

    def close(self) -> None:
        """Free the memory of the model; see `LoadedModel.close`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _make_cluster_runner(self, pure: PureSignature, signature: Signature) -> SignatureRunner:
        return XlaRunner(self._program, pure, signature, self._threads)


def load_xla_model(directory: Path, plan: LoadPlan, options: LoadOptions) -> LoadedModel:
    """Compile the signatures of a CPU metagraph, and copy its variables to jax's CPU device.

    Each signature is compiled for `options.batch_sizes`, or for one row, before the function
    returns.

    Args:
      directory: the directory of the SavedModel.
      plan: the load plan; its `runtime_plan` is an `XlaPlan` with a `pjrt_plan`.
      options: the options of the load.

    Raises:
      ExtraNotInstalled, TpuNotFound: jax or its CPU device is missing.
      UnsupportedModel, UnsupportedOnTpu: XLA cannot run a signature.
      DamagedSavedModel: the checkpoint lacks a variable.
    """
    xla_plan: XlaPlan = plan.runtime_plan
    return load_pjrt_model(
        directory,
        dataclasses.replace(plan, signatures=xla_plan.signatures, runtime_plan=xla_plan.pjrt_plan),
        options,
        max_devices=1,
        forbids_endless_loops=xla_plan.has_loop,
        make_tracer=_make_tracer,
        compile_clusters=functools.partial(_compile_signatures, options.batch_sizes or (1,)),
        model_class=XlaModel,
    )


def _make_tracer(graph: Any) -> TraceSignature:
    """Return a function that finds the XLA cluster of a signature.

    Args:
      graph: a GraphDef in which one call of a function computes each signature.
    """
    nodes = {node.name: node for node in graph.node}

    def trace(
        signature: Signature, rows: int | None, other_size: int | None
    ) -> Sequence[XlaCluster]:
        inputs = {spec.name: spec for spec in signature.inputs.values()}
        (name,) = {spec.name.partition(":")[0] for spec in signature.outputs.values()}
        arguments = []
        for reference in nodes[name].input:
            spec = inputs.get(reference if ":" in reference else f"{reference}:0")
            arguments.append(
                _describe_variable(nodes[reference])
                if spec is None
                else AbstractTensor(tf.as_dtype(spec.dtype), open_shape(spec, rows, other_size))
            )
        return [XlaCluster(nodes[name].attr["f"].func.name, tuple(arguments))]

    return trace


def _describe_variable(handle: Any) -> AbstractTensor:
    """Return the abstract tensor of a VarHandleOp node."""
    shape = shape_from_proto(handle.attr["shape"].shape)
    dtype = tf.as_dtype(handle.attr["dtype"].type)
    return AbstractTensor(tf.resource, (), VariableSpec(variable_name(handle), dtype, shape))


def _compile_signatures(
    batch_sizes: Sequence[int],
    program: ClusterProgram,
    trace: TraceSignature,
    graph: Any,
    signatures: Mapping[str, Signature],
) -> None:
    for name, signature in signatures.items():
        for alias, spec in signature.inputs.items():
            if spec.shape is None:
                raise UnsupportedModel(f"input {alias!r} of signature {name!r} has an unknown rank")
        for rows in batch_sizes:
            _compile_signature(program, functools.partial(trace, signature, rows), signature)


def _compile_signature(
    program: ClusterProgram,
    trace: Callable[[int], Sequence[XlaCluster]],
    signature: Signature,
) -> None:
    """Compile a signature for one size of the dimensions that it leaves open besides the first.

    Args:
      program: compiles the signature.
      trace: takes the size, and returns the cluster of the signature.
      signature: the signature.

    Raises:
      UnsupportedOnTpu: XLA compiles the signature for no size.
    """
    shapes = [spec.shape or () for spec in signature.inputs.values()]
    sizes = _OTHER_SIZES if any(None in shape[1:] for shape in shapes) else _OTHER_SIZES[:1]
    for size in sizes:
        try:
            for cluster in trace(size):
                program.compile(cluster)
        except UnsupportedOnTpu:
            if size == sizes[-1]:
                raise
        else:
            return
