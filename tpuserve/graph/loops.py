"""Finds graphs with loops: a run of such a graph may take any time, or never end."""

from typing import Any

# The ops of functional loops, and the op that every loop of TensorFlow 1 has.
_LOOP_OPS = frozenset(("While", "StatelessWhile", "For", "LoopCond"))


def has_loop(graph: Any) -> bool:
    """Return whether a GraphDef, or a function of its library, has a loop."""
    if any(node.op in _LOOP_OPS for node in graph.node):
        return True
    return any(
        node.op in _LOOP_OPS for function in graph.library.function for node in function.node_def
    )
