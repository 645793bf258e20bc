"""Reads the allowed_batch_sizes of the BatchFunction ops of a graph."""

from typing import Any

OP = "BatchFunction"


def allowed_batch_sizes(graph_def: Any) -> tuple[int, ...]:
    """Return the batch sizes to which the BatchFunction ops of a graph pad their batches.

    Returns:
      The allowed_batch_sizes of all ops together, in increasing order; empty if no BatchFunction op
      pads its batches.
    """
    functions = graph_def.library.function
    bodies = [graph_def.node, *(function.node_def for function in functions)]
    sizes = {
        int(size)
        for nodes in bodies
        for node in nodes
        if node.op == OP
        for size in node.attr["allowed_batch_sizes"].list.i
    }
    return tuple(sorted(sizes))
