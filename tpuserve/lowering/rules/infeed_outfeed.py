"""Rules that replace infeed and outfeed ops by ops on FIFO queues.

Each TPU core has one queue for its infeed and one for its outfeed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuserve.graph.references import data_inputs
from tpuserve.lowering.ir.core_placement import target_core
from tpuserve.lowering.ir.graph_ir import Value
from tpuserve.lowering.rules.node_rewriting import RewriteScope, replace_op
from tpuserve.lowering.rules.op_spec import ReplicatedOp

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

# The largest number of batches that wait in the infeed queue of a core, and of results that wait in
# its outfeed queue. With two, the host and the core can work at the same time.
_CAPACITY = 2


def lower_infeed_dequeue(op: ReplicatedOp) -> list[list[Value]]:
    """Replace an InfeedDequeue(Tuple) by a dequeue op for each replica's infeed queue."""
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
    """Replace an OutfeedEnqueue(Tuple) by an enqueue op for each replica's outfeed queue.

    The op has no outputs, so there are none to replace and the returned list is empty.
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
    """Turn the host's InfeedEnqueue(Tuple) into an enqueue op for the infeed queue of its core."""
    types = _transferred_types(node)
    queue = _add_host_queue("infeed", node, types, scope)
    replace_op(node, "QueueEnqueueV2", [queue, *data_inputs(node)])
    node.attr["Tcomponents"].list.type.extend(types)
    node.attr["timeout_ms"].i = -1


def rewrite_outfeed_dequeue(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn the host's OutfeedDequeue(Tuple) into a dequeue op for the outfeed queue of its core."""
    types = _transferred_types(node)
    queue = _add_host_queue("outfeed", node, types, scope)
    replace_op(node, "QueueDequeueV2", [queue])
    node.attr["component_types"].list.type.extend(types)
    node.attr["timeout_ms"].i = -1


def queue_name_prefix(direction: str) -> str:
    """Return the common prefix of the `shared_name` of all queues for "infeed" or for "outfeed"."""
    return f"emulated_tpu/{direction}/"


def _transferred_types(definition: "NodeDef") -> list[int]:
    """Return the DataTypes of the tensors that an infeed or outfeed op transfers."""
    if "dtypes" in definition.attr:
        return list(definition.attr["dtypes"].list.type)
    return [definition.attr["dtype"].type]


def _add_host_queue(
    direction: str, node: "NodeDef", types: Sequence[int], scope: RewriteScope
) -> str:
    queue = scope.add_node(f"{node.name}/queue")
    _set_queue(queue, direction, target_core(node), types)
    return scope.reference(queue, "handle")


def _core_queue(direction: str, core: int, types: Sequence[int]) -> "NodeDef":
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    queue = NodeDef()
    _set_queue(queue, direction, core, types)
    return queue


def _set_queue(node: "NodeDef", direction: str, core: int, types: Sequence[int]) -> None:
    """Turn a NodeDef into the FIFOQueueV2 that is the infeed or outfeed queue of a TPU core."""
    node.op = "FIFOQueueV2"
    node.attr["component_types"].list.type.extend(types)
    node.attr["shapes"].list.SetInParent()
    node.attr["capacity"].i = _CAPACITY
    node.attr["container"].s = b""
    node.attr["shared_name"].s = f"{queue_name_prefix(direction)}{core}".encode()
