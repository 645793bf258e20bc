"""Lowering inside of a live graph, for a session that holds its variables and hooks already."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.graph import reachability
from tpuserve.lowering.graph_lowering import lower
from tpuserve.lowering.ir.function_renaming import rename_changed_functions
from tpuserve.lowering.rules.infeed_outfeed import queue_name


@dataclass(frozen=True)
class LoweredSubgraph:
    """A part of a live graph in its lowered form.

    Attributes:
      targets: the lowered form of the targets, in their order.
      end_infeeds, end_outfeeds: ops that wake whoever waits at a queue of a core: what is in it
        can still be taken, and then taking raises tf.errors.OutOfRangeError.
    """

    targets: list[Any]
    end_infeeds: Any
    end_outfeeds: Any


def lower_in_place(targets: Sequence[Any], *, compiled: bool = True) -> LoweredSubgraph:
    """Lowered twins of ops and tensors, in the same graph.

    What the targets need is copied, lowered and added to the default graph. Variables,
    iterators, tables and what is fed are not copied: both forms of the graph share them.

    Args:
      targets: operations and tensors of the default graph.
      compiled: whether XLA compiles what each core computes.

    Raises:
      LoweringError: something has no form on a CPU.
    """
    graph = tf.compat.v1.get_default_graph()
    operations = reachability.reachable_ops([getattr(each, "op", each) for each in targets])
    outside = _outside_inputs(operations)
    definition = _definition(graph, operations, outside)
    lowered = lower(definition, compiled=compiled)
    queues = _queues(lowered)
    rename_changed_functions(lowered, definition)
    stand_ins = {name: tensor for tensor, name in outside.values()}
    inside = [node for node in lowered.node if node.name not in stand_ins]
    del lowered.node[:]
    lowered.node.extend(inside)
    twins: list[Any] = tf.graph_util.import_graph_def(
        lowered,
        input_map={f"{name}:0": tensor for name, tensor in stand_ins.items()},
        return_elements=[each.name for each in targets],
        name="emulated",
    )
    return LoweredSubgraph(twins, _end(queues, "infeed"), _end(queues, "outfeed"))


def _queues(graph: Any) -> dict[str, Any]:
    """The nodes that stand for a core's queue, by its name; one of each."""
    nodes = (graph.node, *(each.node_def for each in graph.library.function))
    return {
        node.attr["shared_name"].s.decode(): node
        for each in nodes
        for node in each
        if node.op == "FIFOQueueV2"
    }


def _end(queues: dict[str, Any], direction: str) -> Any:
    ends = []
    for name, node in queues.items():
        if name.startswith(queue_name(direction, "")):
            queue = tf.raw_ops.FIFOQueueV2(
                component_types=[
                    tf.as_dtype(each) for each in node.attr["component_types"].list.type
                ],
                capacity=node.attr["capacity"].i,
                shared_name=name,
            )
            ends.append(tf.raw_ops.QueueCloseV2(handle=queue, cancel_pending_enqueues=True))
    return tf.group(*ends)


def _outside_inputs(operations: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """Name of each tensor from outside → the tensor, and the name of its stand-in."""
    found: dict[str, tuple[Any, str]] = {}
    for operation in operations.values():
        for tensor in operation.inputs:
            if tensor.op.name not in operations and tensor.name not in found:
                found[tensor.name] = (tensor, f"outside_{len(found)}")
    return found


def _definition(graph: Any, operations: dict[str, Any], outside: dict[str, tuple[Any, str]]) -> Any:
    whole = graph.as_graph_def()
    definition = tf.compat.v1.GraphDef(versions=whole.versions, library=whole.library)
    for tensor, name in outside.values():
        stand_in = definition.node.add(name=name, op="Placeholder")
        stand_in.attr["dtype"].type = tensor.dtype.base_dtype.as_datatype_enum
    for node in whole.node:
        operation = operations.get(node.name)
        if operation is None:
            continue
        copy = definition.node.add()
        copy.CopyFrom(node)
        # Variables stay where they are, so there is nothing in the copy to be colocated with.
        copy.attr.pop("_class", None)
        del copy.input[:]
        for tensor in operation.inputs:
            copy.input.append(outside[tensor.name][1] if tensor.name in outside else tensor.name)
        copy.input.extend(
            f"^{each.name}" for each in operation.control_inputs if each.name in operations
        )
    return definition
