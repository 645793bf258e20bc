"""Infeed and outfeed, as bounded queues: one of each per core.

Both ends of a queue are lowered apart, one in a host's pipeline and one in a computation. They
find each other by the name of the queue, which holds the core's ordinal.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tpuserve.lowering.ir.core_placement import core_of
from tpuserve.lowering.ir.graph_ir import Value
from tpuserve.lowering.rules.rewrite_rule import data_inputs, replace_op

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    Make = Callable[..., Value]

# Batches that may wait for a core, and results that may wait for the host. Two let one side work
# ahead of the other; a TPU's buffers are as short.
CAPACITY = 2

_HOST_SIDE = {
    "InfeedEnqueue": {},
    "InfeedEnqueueTuple": {},
    "OutfeedDequeue": {"output": "components"},
    "OutfeedDequeueTuple": {"outputs": "components"},
}


def lower_dequeue(
    definition: "NodeDef", core: int, inputs: Sequence[Value], make: "Make"
) -> list[Value]:
    """What a core takes from its infeed."""
    types = transferred_types(definition)
    queue = _queue_of_core("infeed", core, types, make)
    batch = make("QueueDequeueV2", [queue], component_types=types, timeout_ms=-1)
    return [Value(batch.producer, number) for number in range(len(types))]


def lower_enqueue(
    definition: "NodeDef", core: int, inputs: Sequence[Value], make: "Make"
) -> list[Value]:
    """What a core puts into its outfeed; an op without outputs."""
    types = transferred_types(definition)
    queue = _queue_of_core("outfeed", core, types, make)
    make("QueueEnqueueV2", [queue, *inputs], Tcomponents=types, timeout_ms=-1)
    return []


def lower_host_side(nodes: Any, *, in_function: bool) -> dict[str, dict[str, str]]:
    """Replaces, in place, what a host does with infeeds and outfeeds.

    Returns:
      By node, the output arguments that got another name.
    """
    renamed = {}
    for node in [each for each in nodes if each.op in _HOST_SIDE]:
        renamed[node.name] = _HOST_SIDE[node.op]
        direction = "infeed" if node.op.startswith("Infeed") else "outfeed"
        types, core = transferred_types(node), core_of(node)
        queue = nodes.add(name=f"{node.name}/queue")
        _be_queue(queue, queue_name(direction, core), types)
        handle = f"{queue.name}:handle:0" if in_function else queue.name
        if direction == "infeed":
            replace_op(node, "QueueEnqueueV2", [handle, *data_inputs(node)])
            node.attr["Tcomponents"].list.type.extend(types)
        else:
            replace_op(node, "QueueDequeueV2", [handle])
            node.attr["component_types"].list.type.extend(types)
        node.attr["timeout_ms"].i = -1
    return renamed


def transferred_types(definition: "NodeDef") -> list[int]:
    """The types that an infeed or outfeed op moves."""
    if "dtypes" in definition.attr:
        return list(definition.attr["dtypes"].list.type)
    return [definition.attr["dtype"].type]


def queue_name(direction: str, core: int | str) -> str:
    """The name by which both ends find the queue of a core; for "", what all begin with."""
    return f"emulated_tpu/{direction}/{core}"


def _queue_of_core(direction: str, core: int, types: Sequence[int], make: "Make") -> Value:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    queue = NodeDef()
    _be_queue(queue, queue_name(direction, core), types)
    return make(queue, [])


def _be_queue(node: "NodeDef", name: str, types: Sequence[int]) -> None:
    node.op = "FIFOQueueV2"
    node.attr["component_types"].list.type.extend(types)
    node.attr["shapes"].list.SetInParent()
    node.attr["capacity"].i = CAPACITY
    node.attr["container"].s = b""
    node.attr["shared_name"].s = name.encode()
