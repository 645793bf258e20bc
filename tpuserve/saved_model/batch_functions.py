"""What the BatchFunctions of a graph say about batch sizes."""

from typing import Any

OP = "BatchFunction"


def allowed_batch_sizes(graph_def: Any) -> tuple[int, ...]:
    """The batch sizes that the BatchFunctions of a graph pad to: all together, increasing.

    Args:
      graph_def: a GraphDef, TensorFlow's or that of `tpuserve.proto`; those in its functions count.

    Returns:
      Sizes in rows; none where there is no BatchFunction, or none that pads.
    """
    bodies = [graph_def.node, *(each.node_def for each in graph_def.library.function)]
    sizes = {
        int(size)
        for nodes in bodies
        for node in nodes
        if node.op == OP
        for size in node.attr["allowed_batch_sizes"].list.i
    }
    return tuple(sorted(sizes))
