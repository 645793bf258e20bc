"""Adds CPU copies of TPU ops to a tf.Graph that is in use, for example by a session's hooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.graph import reachability
from tpuserve.lowering.graph_lowering import lower
from tpuserve.lowering.ir.function_renaming import rename_changed_functions
from tpuserve.lowering.rules.infeed_outfeed import queue_name_prefix


@dataclass(frozen=True)
class LoweredSubgraph:
    """The result of `lower_in_place`: copies of ops, in which CPU ops replace the TPU ops.

    Attributes:
      end_infeeds, end_outfeeds: ops that close the queues which replace infeeds and outfeeds.
    """

    targets: list[Any]
    end_infeeds: Any
    end_outfeeds: Any


def lower_in_place(targets: Sequence[Any], *, compiled: bool = True) -> LoweredSubgraph:
    """Add copies of ops to the default graph, with CPU ops in place of TPU ops.

    The targets and all ops that they need are copied.
    """
    graph = tf.compat.v1.get_default_graph()
    operations = reachability.reachable_ops([getattr(target, "op", target) for target in targets])
    placeholders = _placeholder_names(operations)
    definition = _graph_def(graph, operations, placeholders)
    lowered = lower(definition, compiled=compiled)
    queues = _core_queues(lowered)
    rename_changed_functions(lowered, definition)
    shared = {name: tensor for tensor, name in placeholders.values()}
    copied = [node for node in lowered.node if node.name not in shared]
    del lowered.node[:]
    lowered.node.extend(copied)
    lowered_targets: list[Any] = tf.graph_util.import_graph_def(
        lowered,
        input_map={f"{name}:0": tensor for name, tensor in shared.items()},
        return_elements=[target.name for target in targets],
        name="emulated",
    )
    for target, lowered_target in zip(targets, lowered_targets, strict=True):
        # Set the static shape of each copied tensor. TensorFlow cannot infer the shape of a tensor
        # that comes from a queue, and queues have replaced infeeds and outfeeds.
        if tf.is_tensor(lowered_target):
            lowered_target.set_shape(target.shape)
    return LoweredSubgraph(
        lowered_targets, _close_queues(queues, "infeed"), _close_queues(queues, "outfeed")
    )


def _core_queues(graph: Any) -> dict[str, Any]:
    node_lists = (graph.node, *(function.node_def for function in graph.library.function))
    return {
        node.attr["shared_name"].s.decode(): node
        for nodes in node_lists
        for node in nodes
        if node.op == "FIFOQueueV2"
    }


def _close_queues(queues: dict[str, Any], direction: str) -> Any:
    """Build an op that closes all queues of one direction."""
    closes = []
    for name, node in queues.items():
        if name.startswith(queue_name_prefix(direction)):
            queue = tf.raw_ops.FIFOQueueV2(
                component_types=[
                    tf.as_dtype(dtype) for dtype in node.attr["component_types"].list.type
                ],
                capacity=node.attr["capacity"].i,
                shared_name=name,
            )
            closes.append(tf.raw_ops.QueueCloseV2(handle=queue, cancel_pending_enqueues=True))
    return tf.group(*closes)


def _placeholder_names(operations: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    placeholders: dict[str, tuple[Any, str]] = {}
    for operation in operations.values():
        for tensor in operation.inputs:
            if tensor.op.name not in operations and tensor.name not in placeholders:
                placeholders[tensor.name] = (tensor, f"outside_{len(placeholders)}")
    return placeholders


def _graph_def(
    graph: Any, operations: dict[str, Any], placeholders: dict[str, tuple[Any, str]]
) -> Any:
    """Return a GraphDef of some operations, with placeholders for inputs from other operations."""
    whole = graph.as_graph_def()
    definition = tf.compat.v1.GraphDef(versions=whole.versions, library=whole.library)
    for tensor, name in placeholders.values():
        placeholder = definition.node.add(name=name, op="Placeholder")
        placeholder.attr["dtype"].type = tensor.dtype.base_dtype.as_datatype_enum
    for node in whole.node:
        operation = operations.get(node.name)
        if operation is None:
            continue
        copy = definition.node.add()
        copy.CopyFrom(node)
        # Remove colocation constraints: they name variables, which the GraphDef does not have.
        copy.attr.pop("_class", None)
        del copy.input[:]
        for tensor in operation.inputs:
            is_shared = tensor.name in placeholders
            copy.input.append(placeholders[tensor.name][1] if is_shared else tensor.name)
        copy.input.extend(
            f"^{control.name}" for control in operation.control_inputs if control.name in operations
        )
    return definition
