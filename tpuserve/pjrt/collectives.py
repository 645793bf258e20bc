"""Replaces the collective ops of a training step, because TensorFlow has no XLA kernels for them.

A reduction, such as CrossReplicaSum, is replaced by an XlaAllReduce. Any other collective, such as
AllToAll, is replaced by a custom call, which marks its place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.graph.references import data_inputs, node_name
from tpuserve.lowering.rules.node_rewriting import replace_op
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec
from tpuserve.pjrt.randomness import RaiseUnsupported
from tpuserve.stablehlo import spmd_collectives


def replace_collectives(
    graph: Any, shapes: Mapping[str, Sequence[int | None] | None], refuse: RaiseUnsupported
) -> None:
    """Replace, in place, the collective ops of a graph and of its functions.

    Args:
      shapes: name of a node in the main graph → the static shape of its first output.
      refuse: raises an error. It is called for a collective that is no reduction if the collective
        has no custom call, has no static shape, or is in a function, where shapes are not known.
    """
    for function in graph.library.function:
        for node in function.node_def:
            if _needs_marker(node):
                refuse(node, function.signature.name)
            _replace_reduction(node)
    constants = {node.name: node for node in graph.node if node.op in ("Const", "Identity")}
    for node in graph.node:
        _replace_reduction(node)
        if _needs_marker(node):
            shape = shapes.get(node.name)
            if node.op not in _MARKERS or shape is None or None in shape:
                refuse(node, "")
            _replace_by_marker(node, shape, _constant_rows(node, constants))


def _needs_marker(node: Any) -> bool:
    spec = op_spec(node.op)
    return spec.kind is OpKind.COLLECTIVE and not spec.is_reduction


def _replace_reduction(node: Any) -> None:
    reduction = op_spec(node.op).reduction
    if reduction:
        node.op = "XlaAllReduce"
        node.attr["reduce_op"].s = reduction.encode()
        node.attr["mode"].s = b"CrossReplicaAndPartition"


def _replace_by_marker(node: Any, shape: Any, rows: Sequence[Sequence[int]]) -> None:
    dtype = node.attr["T"].type
    target, make_config = _MARKERS[node.op]
    config = make_config(node, rows)
    replace_op(node, "XlaCustomCallV2", data_inputs(node)[:1])
    node.attr["call_target_name"].s = target.encode()
    node.attr["backend_config"].s = config.encode()
    node.attr["has_side_effect"].b = False
    node.attr["operand_dtypes"].list.type.append(dtype)
    node.attr["result_dtypes"].list.type.append(dtype)
    result = node.attr["result_shapes"].list.shape.add()
    for size in shape:
        result.dim.add(size=size)


def _all_to_all_config(node: Any, groups: Sequence[Sequence[int]]) -> str:
    return spmd_collectives.all_to_all_config(
        node.attr["split_dimension"].i,
        node.attr["concat_dimension"].i,
        node.attr["split_count"].i,
        groups,
    )


def _permute_config(node: Any, pairs: Sequence[Sequence[int]]) -> str:
    return spmd_collectives.permute_config(pairs)


# Type of a collective op → (the name of the custom call that replaces it, a function that returns
# the backend_config of the custom call).
_MARKERS = {
    "AllToAll": (spmd_collectives.ALL_TO_ALL, _all_to_all_config),
    "CollectivePermute": (spmd_collectives.COLLECTIVE_PERMUTE, _permute_config),
}


def _constant_rows(node: Any, constants: Mapping[str, Any]) -> Sequence[Sequence[int]]:
    from tpuserve.tensorflow_internals import tensor_util

    producer = constants[node_name(data_inputs(node)[1])]
    while producer.op == "Identity":
        producer = constants[node_name(data_inputs(producer)[0])]
    rows: Sequence[Sequence[int]] = tensor_util.MakeNdarray(producer.attr["value"].tensor).tolist()
    return rows
