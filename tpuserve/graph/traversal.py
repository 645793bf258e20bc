"""Traversal of directed graphs whose nodes are names."""

from collections.abc import Callable, Iterable


def find_reachable(
    start: Iterable[str], neighbours: Callable[[str], Iterable[str] | None]
) -> set[str]:
    """Return the given names, and all names that can be reached from them.

    Args:
      start: the names where the traversal begins.
      neighbours: takes a name, and returns the names that its edges lead to; or None if the name is
        not a node of the graph. Such names are not returned.
    """
    reached: set[str] = set()
    outside: set[str] = set()
    # Use no recursion: a path may be longer than Python's stack is deep.
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
