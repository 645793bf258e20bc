"""Finds the signatures that are nothing but one XLA cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuserve.saved_model.signature import Signature
from tpuserve.stablehlo.cluster_finder import XlaCluster


@dataclass(frozen=True)
class PureSignature:
    """A signature whose outputs one cluster computes from the signature's inputs.

    Attributes:
      function: the function name of the cluster.
      aliases: the input alias of each argument of the cluster that is not a variable.
      results: output alias → index of the result of the cluster.
    """

    function: str
    aliases: Sequence[str]
    results: Mapping[str, int]


def find_pure_signature(
    graph: Any, signature: Signature, clusters: Mapping[str, XlaCluster]
) -> PureSignature | None:
    """Return how a cluster computes a signature; None if the signature needs other ops too.

    Args:
      graph: the lowered GraphDef.
      signature: the signature.
      clusters: function name → the cluster.
    """
    nodes = {node.name: node for node in graph.node}
    calls, results = set(), {}
    for alias, spec in signature.outputs.items():
        name, index = _skip_identities(spec.name, nodes)
        calls.add(name)
        results[alias] = index
    call = nodes.get(calls.pop()) if len(calls) == 1 else None
    function = "" if call is None else call.attr["f"].func.name
    if call is None or function not in clusters:
        return None
    if any(reference.startswith("^") for reference in call.input):
        return None
    inputs = {spec.name.partition(":")[0]: alias for alias, spec in signature.inputs.items()}
    aliases = []
    for reference, argument in zip(call.input, clusters[function].arguments, strict=True):
        if argument.variable is None:
            name, _ = _skip_identities(reference, nodes)
            if name not in inputs:
                return None
            aliases.append(inputs[name])
    return PureSignature(function, aliases, results)


def _skip_identities(reference: str, nodes: Mapping[str, Any]) -> tuple[str, int]:
    """Return the node and the output index that a tensor comes from, before Identity ops."""
    name, _, index = reference.partition(":")
    node = nodes.get(name)
    while node is not None and node.op == "Identity" and len(node.input) == 1:
        name, _, index = node.input[0].partition(":")
        node = nodes.get(name)
    return name, int(index or 0)
