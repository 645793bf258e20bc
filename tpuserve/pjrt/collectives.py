"""Replaces the collective ops of a training step, because TensorFlow has no XLA kernels for them.

A CrossReplicaSum is replaced by an XlaAllReduce. An AllToAll or CollectivePermute is replaced by a
custom call. After the translation to StableHLO, `tpuserve.stablehlo.spmd_collectives` replaces the
custom call (a marker) by the collective.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.graph.references import data_inputs, node_name
from tpuserve.lowering.rules.node_rewriting import replace_op
from tpuserve.pjrt.randomness import RaiseUnsupported
from tpuserve.stablehlo import spmd_collectives

_WITH_MARKER = ("AllToAll", "CollectivePermute")


def replace_collectives(
    graph: Any, shapes: Mapping[str, Sequence[int | None] | None], refuse: RaiseUnsupported
) -> None:
    """Replace, in place, the collective ops of a graph and of its functions.

    Args:
      graph: a GraphDef.
      shapes: name of a node in the main graph → the static shape of its first output.
      refuse: raises an error. It is called for an AllToAll or CollectivePermute in a function,
        because the custom call in its place needs a known shape.
    """
    for function in graph.library.function:
        for node in function.node_def:
            if node.op in _WITH_MARKER:
                refuse(node, function.signature.name)
            _replace_sum(node)
    constants = {node.name: node for node in graph.node if node.op in ("Const", "Identity")}
    for node in graph.node:
        _replace_sum(node)
        if node.op in _WITH_MARKER:
            shape = shapes.get(node.name)
            if shape is None or None in shape:
                refuse(node, "")
            _replace_by_marker(node, shape, _constant_rows(node, constants))


def _replace_sum(node: Any) -> None:
    if node.op == "CrossReplicaSum":
        node.op = "XlaAllReduce"
        node.attr["reduce_op"].s = b"Add"
        node.attr["mode"].s = b"CrossReplicaAndPartition"


def _replace_by_marker(node: Any, shape: Any, rows: Sequence[Sequence[int]]) -> None:
    attributes = node.attr
    dtype = attributes["T"].type
    if node.op == "CollectivePermute":
        target, config = spmd_collectives.COLLECTIVE_PERMUTE, spmd_collectives.permute_config(rows)
    else:
        target = spmd_collectives.ALL_TO_ALL
        config = spmd_collectives.all_to_all_config(
            attributes["split_dimension"].i,
            attributes["concat_dimension"].i,
            attributes["split_count"].i,
            rows,
        )
    replace_op(node, "XlaCustomCallV2", data_inputs(node)[:1])
    node.attr["call_target_name"].s = target.encode()
    node.attr["backend_config"].s = config.encode()
    node.attr["has_side_effect"].b = False
    node.attr["operand_dtypes"].list.type.append(dtype)
    node.attr["result_dtypes"].list.type.append(dtype)
    result = node.attr["result_shapes"].list.shape.add()
    for size in shape:
        result.dim.add(size=size)


def _constant_rows(node: Any, constants: Mapping[str, Any]) -> Sequence[Sequence[int]]:
    from tpuserve.tensorflow_internals import tensor_util

    producer = constants[node_name(data_inputs(node)[1])]
    while producer.op == "Identity":
        producer = constants[node_name(data_inputs(producer)[0])]
    rows: Sequence[Sequence[int]] = tensor_util.MakeNdarray(producer.attr["value"].tensor).tolist()
    return rows
