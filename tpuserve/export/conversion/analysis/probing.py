"""Finds the nodes that XLA cannot compile, by a test compilation of the TPU computations."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidInput, UnsupportedOnTpu
from tpuserve.export.conversion.analysis import constants
from tpuserve.export.conversion.analysis.shapes import OPEN_SIZES
from tpuserve.graph.references import find_tensors
from tpuserve.lowering import lower
from tpuserve.stablehlo import xla_errors
from tpuserve.stablehlo.abstract_tensor import AbstractTensor, shape_from_proto
from tpuserve.stablehlo.cluster_finder import ClusterFinder, XlaCluster
from tpuserve.stablehlo.translator import StableHloTranslator

NOT_CONSTANT = "its input {} must be a constant for XLA, and is known only in a run"
REFUSED = "XLA cannot compile it"


def find_refused(meta_graph: Any, signatures: Sequence[str], batch_size: int) -> dict[str, str]:
    """Find the nodes that XLA cannot compile, by compiling the TPU computations to StableHLO.

    Returns:
      Node name → why XLA cannot compile the node; empty if everything compiles.
    """
    graph = lower(constants.clear_large_constants(meta_graph.graph_def))
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            node.attr.pop("_class", None)
    translator = StableHloTranslator(graph)
    refused: dict[str, str] = {}
    for name in signatures:
        failure = _compile_signature(graph, translator, meta_graph.signature_def[name], batch_size)
        if failure is None:
            continue
        text = str(failure.__cause__ or failure)
        causes = {op.node: REFUSED for op in xla_errors.find_unsupported_ops(text)} | {
            op.node: NOT_CONSTANT.format(op.input_number)
            for op in xla_errors.find_nonconstant_inputs(text)
        }
        causes = causes or {
            node: f"{REFUSED}: {why}" for node, why in xla_errors.find_failure(text).items()
        }
        if not causes:
            raise ExportError(
                f"XLA refuses the TPU part of signature {name!r}: {failure}. Leave a part of the "
                f"model on the host: convert a function by its alias."
            )
        refused |= {_find_caller(graph, node): reason for node, reason in causes.items()}
    return refused


def _compile_signature(
    graph: Any, translator: StableHloTranslator, signature: Any, rows: int
) -> Exception | None:
    """Try to compile the TPU computations of a signature to StableHLO."""
    infos = list(signature.inputs.values())
    is_open = any(dim.size < 0 for info in infos for dim in list(info.tensor_shape.dim)[1:])
    failure: Exception | None = None
    for size in OPEN_SIZES if is_open else OPEN_SIZES[:1]:
        try:
            for cluster in _find_clusters(graph, signature, rows, size):
                translator.translate(cluster)
        except (UnsupportedOnTpu, InvalidInput) as error:
            failure = failure or error
        else:
            return None
    return failure


def _find_clusters(graph: Any, signature: Any, rows: int, size: int) -> list[XlaCluster]:
    feeds = {}
    for info in signature.inputs.values():
        for tensor in find_tensors(info):
            shape = shape_from_proto(info.tensor_shape)
            feeds[tensor] = AbstractTensor(tf.as_dtype(info.dtype), _close(shape, rows, size))
    outputs = [tensor for info in signature.outputs.values() for tensor in find_tensors(info)]
    finder = ClusterFinder(graph)
    finder.trace(feeds, outputs)
    return [
        dataclasses.replace(
            cluster,
            arguments=tuple(
                argument
                if argument.variable
                else dataclasses.replace(argument, shape=_close(argument.shape, rows, size) or ())
                for argument in cluster.arguments
            ),
        )
        for cluster in finder.clusters
    ]


def _close(shape: Any, rows: int, size: int) -> tuple[int, ...] | None:
    if shape is None:
        return None
    return tuple(
        (rows if axis == 0 else size) if length is None else length
        for axis, length in enumerate(shape)
    )


def _find_caller(graph: Any, node: str) -> str:
    """Return the name of the outermost loop or branch that a node is in."""
    functions: Mapping[str, Any] = {
        function.signature.name: function for function in graph.library.function
    }
    holders = {
        inner.name: name for name, function in functions.items() for inner in function.node_def
    }
    visited: set[str] = set()
    while node in holders and holders[node] not in visited:
        function = holders[node]
        visited.add(function)
        callers = [
            caller.name
            for other in functions.values()
            for caller in other.node_def
            if caller.op
            in ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")
            and any(
                function in (attr.func.name, *(item.name for item in attr.list.func))
                for attr in caller.attr.values()
            )
        ]
        if not callers:
            break
        node = callers[0]
    return node
