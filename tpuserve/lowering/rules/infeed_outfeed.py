"""Rules for infeeds and outfeeds: each becomes one bounded queue per core and direction.

The op of the host and the op of the computation at the two ends of a queue are lowered separately.
Each gets a queue op with the same `shared_name`, which contains the core's ordinal, so that both
use the same queue.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuserve.lowering.ir.core_placement import target_core
from tpuserve.lowering.ir.graph_ir import Value
from tpuserve.lowering.rules.node_rewriting import RewriteScope, data_inputs, replace_op
from tpuserve.lowering.rules.op_spec import ReplicatedOp

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

# The capacity of each queue: the most batches that wait for a core, or results that wait for the
# host. With two, each side can work ahead of the other; the buffers of a TPU are as short.
CAPACITY = 2


def lower_infeed_dequeue(op: ReplicatedOp) -> list[list[Value]]:
    """Lower an InfeedDequeue(Tuple): each replica dequeues from its core's queue."""
    types = _transferred_types(op.node.definition)
    batches = []
    for replica, core in enumerate(op.cores):
        queue = op.make_node(_core_queue("infeed", core, types), [], replica=replica)
        batches.append(
            op.make_node(
                "QueueDequeueV2", [queue], replica=replica, component_types=types, timeout_ms=-1
            )
        )
    return [[Value(batch.producer, index) for batch in batches] for index in range(len(types))]


def lower_outfeed_enqueue(op: ReplicatedOp) -> list[list[Value]]:
    """Lower an OutfeedEnqueue(Tuple): each replica enqueues into its core's queue.

    The op has no outputs, so the returned list is empty.
    """
    types = _transferred_types(op.node.definition)
    operands = [op.operand(index) for index in range(len(op.node.inputs))]
    for replica, core in enumerate(op.cores):
        queue = op.make_node(_core_queue("outfeed", core, types), [], replica=replica)
        components = [values[replica] for values in operands]
        op.make_node(
            "QueueEnqueueV2",
            [queue, *components],
            replica=replica,
            Tcomponents=types,
            timeout_ms=-1,
        )
    return []


def rewrite_infeed_enqueue(node: "NodeDef", scope: RewriteScope) -> None:
    """Rewrite the host's InfeedEnqueue(Tuple) as an enqueue into the queue of the core it feeds."""
    types = _transferred_types(node)
    queue = _add_host_queue("infeed", node, types, scope)
    replace_op(node, "QueueEnqueueV2", [queue, *data_inputs(node)])
    node.attr["Tcomponents"].list.type.extend(types)
    node.attr["timeout_ms"].i = -1


def rewrite_outfeed_dequeue(node: "NodeDef", scope: RewriteScope) -> None:
    """Rewrite the host's OutfeedDequeue(Tuple) as a dequeue from the queue of its source core."""
    types = _transferred_types(node)
    queue = _add_host_queue("outfeed", node, types, scope)
    replace_op(node, "QueueDequeueV2", [queue])
    node.attr["component_types"].list.type.extend(types)
    node.attr["timeout_ms"].i = -1


def queue_name_prefix(direction: str) -> str:
    """Return the prefix of the `shared_name` of all queues for a direction: infeed or outfeed."""
    return f"emulated_tpu/{direction}/"


def _transferred_types(definition: "NodeDef") -> list[int]:
    """Return the DataTypes of the tensors that an infeed or outfeed op transfers."""
    if "dtypes" in definition.attr:
        return list(definition.attr["dtypes"].list.type)
    return [definition.attr["dtype"].type]


def _add_host_queue(
    direction: str, node: "NodeDef", types: Sequence[int], scope: RewriteScope
) -> str:
    """Add a queue op for the core that a host's infeed or outfeed op serves.

    Returns:
      The reference to the queue's handle, for the input of a NodeDef.
    """
    queue = scope.add_node(f"{node.name}/queue")
    if "TPU" not in node.device.upper():
        # Put the queue on the device of the op, because only that device can use the queue's
        # handle.
        queue.device = node.device
    _set_queue(queue, direction, target_core(node), types)
    return scope.reference(queue, "handle")


def _core_queue(direction: str, core: int, types: Sequence[int]) -> "NodeDef":
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    queue = NodeDef()
    _set_queue(queue, direction, core, types)
    return queue


def _set_queue(node: "NodeDef", direction: str, core: int, types: Sequence[int]) -> None:
    """Make a NodeDef the queue op for a core and a direction, "infeed" or "outfeed"."""
    node.op = "FIFOQueueV2"
    node.attr["component_types"].list.type.extend(types)
    node.attr["shapes"].list.SetInParent()
    node.attr["capacity"].i = CAPACITY
    node.attr["container"].s = b""
    node.attr["shared_name"].s = f"{queue_name_prefix(direction)}{core}".encode()
