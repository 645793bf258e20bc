"""Traverses directed graphs whose nodes are identified by names, such as call graphs."""

from collections.abc import Callable, Iterable


def find_reachable(
    start: Iterable[str], neighbours: Callable[[str], Iterable[str] | None]
) -> set[str]:
    """Return the names of some nodes, and of all nodes that can be reached from them.

    Args:
      neighbours: takes the name of a node, and returns the names of the nodes to which its edges
        lead. Returns None if the name is to be left out of the result.
    """
    reached: set[str] = set()
    outside: set[str] = set()
    # Do not use recursion: a path may be longer than Python's recursion limit.
    pending = list(start)
    while pending:
        name = pending.pop()
        if name in reached or name in outside:
            continue
        following = neighbours(name)
        if following is None:
            outside.add(name)
        else:
            reached.add(name)
            pending.extend(following)
    return reached
