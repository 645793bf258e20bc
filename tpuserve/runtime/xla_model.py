"""Loads a CPU metagraph for the "xla" runtime, in which XLA compiles each signature as a whole."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve.errors import UnsupportedModel, UnsupportedOnTpu
from tpuserve.graph.checkpoint_keys import variable_name
from tpuserve.graph.references import node_name
from tpuserve.pjrt.cluster_program import ClusterProgram
from tpuserve.runtime.load_plan import LoadPlan
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.pjrt_model import (
    TraceSignature,
    load_pjrt_model,
    open_shape,
)
from tpuserve.runtime.registry import LoadOptions
from tpuserve.runtime.xla_runtime import XlaPlan
from tpuserve.saved_model.signature import Signature
from tpuserve.stablehlo.abstract_tensor import AbstractTensor, VariableSpec, shape_from_proto
from tpuserve.stablehlo.cluster_finder import XlaCluster

# Dimensions other than the batch can also be unknown in a signature, such as the length of a
# sequence.
_OTHER_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def load_xla_model(directory: Path, plan: LoadPlan, options: LoadOptions) -> LoadedModel:
    """Compile the signatures of a CPU metagraph, and copy its variables to jax's CPU device.

    Before the function returns, each signature is compiled for every batch size in
    `options.batch_sizes`, or for a batch of one example if there are none.

    Raises:
      ExtraNotInstalled, TpuNotFound: jax or its CPU device is missing. TpuNotFound stands for a CPU
        device here, because `load_pjrt_model` raises the same error for all devices.
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
    )


def _make_tracer(graph: Any) -> TraceSignature:
    """Return a function that finds the XLA cluster of a signature."""
    nodes = {node.name: node for node in graph.node}

    def trace(
        signature: Signature, rows: int | None, other_size: int | None
    ) -> Sequence[XlaCluster]:
        inputs = {spec.name: spec for spec in signature.inputs.values()}
        (name,) = {node_name(spec.name) for spec in signature.outputs.values()}
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
