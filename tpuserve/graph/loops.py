"""Finds whether a graph has a loop. A session that runs such a graph may never return."""

from typing import Any

# Types of the ops that are functional loops, and LoopCond, which each loop of TensorFlow 1 has.
_LOOP_OPS = frozenset(("While", "StatelessWhile", "For", "LoopCond"))


def has_loop(graph: Any) -> bool:
    """Return whether a GraphDef, or a function in its library, contains a while loop."""
    if any(node.op in _LOOP_OPS for node in graph.node):
        return True
    return any(
        node.op in _LOOP_OPS for function in graph.library.function for node in function.node_def
    )
