"""Orders the reads and updates of each variable in a training step: reads come first.

If a read and an update of a variable do not depend on each other, TensorFlow defines no order.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.graph.graph_walk import skip_identities
from tpuserve.graph.references import data_inputs, node_name
from tpuserve.graph.traversal import find_reachable

# Types of the ops that read a variable. Their first input is the handle of the variable.
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
# Matches the types of the ops that update a variable, such as AssignVariableOp. One input of each
# such op is the handle of the variable.
_CHANGE = re.compile(r"(Assign(Add|Sub)?VariableOp|Resource(Sparse)?(Apply|Scatter)\w+)")


def read_before_changes(nodes: Sequence[Any]) -> None:
    """Add control inputs, so that each update of a variable waits for the reads of it.

    Reads that depend on the update itself are excepted.
    """
    by_name = {node.name: node for node in nodes}
    reads: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.op in _READS:
            reads[skip_identities(node.input[0], by_name)].append(node.name)
    followers: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for name in map(node_name, node.input):
            followers[name].append(node.name)
    for node in nodes:
        if not _CHANGE.fullmatch(node.op):
            continue
        later = _find_later(node.name, followers)
        handles = {skip_identities(reference, by_name) for reference in data_inputs(node)}
        earlier = set(map(node_name, node.input))
        for read in sorted({read for handle in handles for read in reads.get(handle, ())}):
            if read not in later and read not in earlier:
                node.input.append(f"^{read}")
                followers[read].append(node.name)


def _find_later(name: str, followers: Mapping[str, Sequence[str]]) -> set[str]:
    return find_reachable([name], lambda reached: followers.get(reached, ()))
