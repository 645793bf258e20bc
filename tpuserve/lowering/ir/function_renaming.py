"""New names for functions that were changed, where a graph still has the old ones."""

import itertools
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from tpuserve.saved_model.metagraph import called_functions

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef


def rename_changed_functions(
    graph: "GraphDef", original: "GraphDef", suffix: str = "_lowered"
) -> None:
    """Renames, in place, each function that differs from the original's of the same name.

    Those that call such a function differ by that, and are renamed as well. Functions that are
    the same are dropped from the graph's library: whoever has the original has them.
    """
    before = {each.signature.name: each for each in original.library.function}
    after = {each.signature.name: each for each in graph.library.function}
    taken = before.keys() | after.keys()
    same = {name for name, each in after.items() if name in before and each == before[name]}
    changed = after.keys() - same
    while True:
        callers = {
            name
            for name in same
            if any({node.op, *called_functions(node)} & changed for node in after[name].node_def)
        }
        if not callers:
            break
        same -= callers
        changed |= callers
    new = {name: _unused(name + suffix, taken) if name in before else name for name in changed}
    kept = [after[name] for name in after if name in changed]
    del graph.library.function[:]
    graph.library.function.extend(kept)
    rename_functions(graph, new)


def rename_functions(graph: "GraphDef", new: Mapping[str, str]) -> None:
    """Renames functions of a graph's library in place, there and where they are called.

    Args:
      new: old name → new one; functions that are not named here keep theirs.
    """
    for node in graph.node:
        _rename_in(node, new)
    for each in graph.library.function:
        each.signature.name = new.get(each.signature.name, each.signature.name)
        for node in each.node_def:
            _rename_in(node, new)


def _unused(name: str, taken: Set[str]) -> str:
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


def _rename_in(node: Any, new: Mapping[str, str]) -> None:
    node.op = new.get(node.op, node.op)
    for attribute in node.attr.values():
        kind = attribute.WhichOneof("value")
        if kind == "func":
            attribute.func.name = new.get(attribute.func.name, attribute.func.name)
        elif kind == "list":
            for each in attribute.list.func:
                each.name = new.get(each.name, each.name)
