"""Finds whether a graph has ops of a type, such as loops, which may never return."""

from collections.abc import Collection
from typing import Any

# Types of the ops that are functional loops, and LoopCond, which each loop of TensorFlow 1 has.
_LOOP_OPS = frozenset(("While", "StatelessWhile", "For", "LoopCond"))


def has_loop(graph: Any) -> bool:
    """Return whether a GraphDef, or a function in its library, contains a while loop."""
    return has_op(graph, _LOOP_OPS)


def has_op(graph: Any, types: Collection[str]) -> bool:
    """Return whether a GraphDef, or a function in its library, has an op of one of the types."""
    if any(node.op in types for node in graph.node):
        return True
    return any(
        node.op in types for function in graph.library.function for node in function.node_def
    )
