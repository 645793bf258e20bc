"""Finds which variables a `session.run` uses, and whether it depends on the loop on the devices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec

# The type of the op that returns whether a variable is initialized. The op does not count as a read
# of the variable, because steps on the devices do not change whether it is initialized.
_IS_INITIALIZED = "VarIsInitializedOp"
_ASSIGN = "AssignVariableOp"
OUTFEED_DEQUEUE = "OutfeedDequeueTuple"
"""The type of the ops whose outputs stand for the tensors that the replicas send in a step."""


@dataclass(frozen=True)
class RunUses:
    """Describes how a `session.run` uses the loop of steps on PJRT devices, and its variables."""

    runs_loop: bool
    reads: frozenset[int]
    writes: frozenset[int]
    receives: bool = False


class VariableUses:
    """Computes the RunUses of each `session.run`, and caches them by fetches and feeds.

    Args:
      variables: shared name of a variable of the loop → its index.
    """

    def __init__(self, graph: Any, done: Any, variables: Mapping[str, int]) -> None:
        self._graph, self._done, self._variables = graph, done, variables
        self._known: dict[Any, RunUses] = {}

    def find_uses(self, fetches: Any, feeds: Any) -> RunUses:
        """Return how a `session.run` uses the loop of steps and the loop's variables.

        Args:
          fetches: the fetches of the run, nested as tf.compat.v1.Session accepts them.
        """
        fed = frozenset(getattr(feed, "name", feed) for feed in feeds)
        elements = list(self._elements(fetches))
        key = (fed, *(element.name for element in elements))
        if key not in self._known:
            self._known[key] = self._find(elements, fed)
        return self._known[key]

    def _elements(self, fetches: Any) -> Iterator[Any]:
        """Yield the tensors and operations of the session's graph that nested fetches refer to."""
        for leaf in _leaves(fetches):
            try:
                yield self._graph.as_graph_element(leaf)
            except (KeyError, TypeError, ValueError):
                # Ignore a fetch that is not in the graph, because the session itself raises an
                # error about it.
                continue

    def _find(self, elements: list[Any], fed: frozenset[Any]) -> RunUses:
        pending = [element.op if tf.is_tensor(element) else element for element in elements]
        visited: set[str] = set()
        reads: set[int] = set()
        writes: set[int] = set()
        receives = False
        while pending:
            operation = pending.pop()
            if operation.name in visited:
                continue
            visited.add(operation.name)
            receives |= operation.type == OUTFEED_DEQUEUE
            for tensor in operation.inputs:
                if tensor.name in fed:
                    continue
                pending.append(tensor.op)
                index = self._variable(tensor)
                if index is not None:
                    if operation.type not in (_IS_INITIALIZED, _ASSIGN):
                        reads.add(index)
                    if _may_write(operation):
                        writes.add(index)
            pending.extend(operation.control_inputs)
        runs_loop = self._done.op.name in visited
        return RunUses(runs_loop, frozenset(reads), frozenset(writes), receives)

    def _variable(self, tensor: Any) -> int | None:
        """Return the index of the loop's variable to which a resource handle belongs, or None."""
        if tensor.dtype != tf.resource:
            return None
        operation = tensor.op
        while operation.type == "Identity":
            operation = operation.inputs[0].op
        if operation.type != "VarHandleOp":
            return None
        return self._variables.get(shared_name(operation))


def _leaves(fetches: Any) -> Iterator[Any]:
    if isinstance(fetches, Mapping):
        fetches = list(fetches.values())
    if isinstance(fetches, list | tuple):
        for fetch in fetches:
            yield from _leaves(fetch)
    else:
        # Expand composite tensors, such as a SparseTensor, into their component tensors.
        yield from tf.nest.flatten(fetches, expand_composites=True)


def shared_name(operation: Any) -> str:
    """Return the shared_name of a VarHandleOp, which identifies its variable."""
    name: str = operation.get_attr("shared_name").decode() or operation.name
    return name


def _may_write(operation: Any) -> bool:
    return op_spec(operation.type).kind not in (OpKind.VARIABLE_READ, OpKind.IDENTITY)
