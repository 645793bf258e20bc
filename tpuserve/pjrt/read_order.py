"""Orders the reads and the changes of a variable in a step.

TensorFlow gives a read and a change of a variable no order where neither depends on the other. A
host_call that takes the global step is such a read. The emulated TPU, and in practice TensorFlow
on a CPU, read first; XLA's bridge orders them by the names of the nodes.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpuserve.graph.graph_walk import skip_identities
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.rules.node_rewriting import data_inputs

# The ops that read a variable. Their first input is the variable's handle.
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
# The ops that change a variable. One of their inputs is the variable's handle.
_CHANGE = re.compile(r"(Assign(Add|Sub)?VariableOp|Resource(Sparse)?(Apply|Scatter)\w+)")


def read_before_changes(nodes: Sequence[Any]) -> None:
    """Let each change of a variable wait for the reads that do not depend on it, in place.

    Args:
      nodes: the NodeDefs of a graph.
    """
    by_name = {node.name: node for node in nodes}
    reads: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.op in _READS:
            reads[skip_identities(node.input[0], by_name)].append(node.name)
    followers: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for name in _producers(node):
            followers[name].append(node.name)
    for node in nodes:
        if not _CHANGE.fullmatch(node.op):
            continue
        later = _find_later(node.name, followers)
        handles = {skip_identities(reference, by_name) for reference in data_inputs(node)}
        earlier = set(_producers(node))
        for read in sorted({read for handle in handles for read in reads.get(handle, ())}):
            if read not in later and read not in earlier:
                node.input.append(f"^{read}")
                followers[read].append(node.name)


def _producers(node: Any) -> Iterator[str]:
    for reference in node.input:
        yield reference.lstrip("^").partition(":")[0]


def _find_later(name: str, followers: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of a node and of all nodes that depend on it."""
    return find_reachable([name], lambda reached: followers.get(reached, ()))
