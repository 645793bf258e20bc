"""Finds the signatures that consist of a single XLA cluster, so that they need no session.

An XLA cluster is a function of the graph that XLA compiles as a whole.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuserve.graph.graph_walk import FUNCTION_CALLS, skip_identities
from tpuserve.graph.references import data_inputs, node_name
from tpuserve.saved_model.signature import Signature
from tpuserve.stablehlo.cluster_finder import XlaCluster

# A signature that consists of the call of a cluster and of these ops needs no session. They are
# constants, the handles of variables, and ops that compute nothing.
_FORWARDING_OPS = ("Const", "Identity", "NoOp", "VarHandleOp")
_SEARCHED_OPS = frozenset({*_FORWARDING_OPS, *FUNCTION_CALLS})


@dataclass(frozen=True)
class PureSignature:
    """A signature whose outputs are all results of a single call of an XLA cluster.

    Attributes:
      results: output alias → index of the result of the function.
    """

    function: str
    aliases: Sequence[str]
    results: Mapping[str, int]


@dataclass(frozen=True)
class _TensorOrigin:
    """The origin of a tensor: a node, or a call of an XLA cluster."""

    fed_node: str
    cluster: "_ClusterCall | None" = None
    index: int = 0


@dataclass(frozen=True, eq=False)
class _ClusterCall:
    """One call of an XLA cluster."""

    function: str
    arguments: Sequence[_TensorOrigin]


class _OtherOpError(Exception):
    """Raised if a signature needs a session, because XLA clusters do not contain all of its ops."""


def find_pure_signature(
    graph: Any, signature: Signature, clusters: Mapping[str, XlaCluster]
) -> PureSignature | None:
    """Find the single XLA cluster that computes a whole signature, if there is one.

    Such a signature needs no session.

    Returns:
      The function of the cluster, and which inputs and outputs of the signature are its arguments
      and results. None if the signature needs a session.
    """
    inputs = {node_name(spec.name): alias for alias, spec in signature.inputs.items()}
    outputs = {alias: spec.name for alias, spec in signature.outputs.items()}
    search = _ClusterSearch(graph, clusters.keys(), inputs.keys())
    try:
        sources = dict(zip(outputs, search.find_sources(outputs.values()), strict=True))
    except _OtherOpError:
        return None
    if len(search.calls) != 1 or not all(source.cluster for source in sources.values()):
        return None
    (call,) = search.calls
    arguments = zip(call.arguments, clusters[call.function].arguments, strict=True)
    nodes = [source.fed_node for source, argument in arguments if argument.variable is None]
    if not inputs.keys() >= set(nodes):
        return None
    results = {alias: source.index for alias, source in sources.items()}
    return PureSignature(call.function, [inputs[node] for node in nodes], results)


class _ClusterSearch:
    """Follows the inputs of nodes, from the outputs of a signature back to the calls of clusters.

    Attributes:
      calls: the calls of clusters that have been found.
    """

    def __init__(self, graph: Any, clusters: Collection[str], fed: Collection[str]) -> None:
        self.calls: list[_ClusterCall] = []
        self._functions = {function.signature.name: function for function in graph.library.function}
        self._nodes = {node.name: node for node in graph.node}
        self._clusters, self._fed = clusters, fed

    def find_sources(self, tensors: Iterable[str]) -> list[_TensorOrigin]:
        nodes: dict[str, Any] = {}
        pending = list(tensors)
        while pending:
            name = node_name(pending.pop())
            if name not in nodes and name not in self._fed:
                nodes[name] = self._nodes[name]
                pending.extend(nodes[name].input)
        fed = {name: _TensorOrigin(name) for name in self._fed}
        return self._resolve_all(nodes, fed, tensors)

    def _resolve_all(
        self,
        nodes: Mapping[str, Any],
        arguments: Mapping[str, _TensorOrigin],
        tensors: Iterable[str],
    ) -> list[_TensorOrigin]:
        """Return where tensors of the main graph, or of the body of a function, come from."""
        results: dict[str, Sequence[_TensorOrigin]] = {
            name: [source] for name, source in arguments.items()
        }

        def resolve(tensor: str) -> _TensorOrigin:
            name, _, output = skip_identities(tensor, nodes).partition(":")
            if name not in results:
                node = nodes[name]
                inputs = [resolve(reference) for reference in data_inputs(node)]
                results[name] = self._call(node, inputs)
            # A tensor has the name "node" or "node:index" in a graph, and "node:output:index" in a
            # function.
            return results[name][int(output.rpartition(":")[2] or 0)]

        # Check the ops before calling `resolve`, which is recursive: in a large graph that computes
        # outside of XLA clusters, the recursion would exceed Python's limit.
        if not all(node.op in _SEARCHED_OPS for node in nodes.values()):
            raise _OtherOpError
        for node in nodes.values():
            if node.op in FUNCTION_CALLS:
                resolve(node.name)
        return [resolve(tensor) for tensor in tensors]

    def _call(self, node: Any, arguments: Sequence[_TensorOrigin]) -> Sequence[_TensorOrigin]:
        """Return where the results of a node or of a function call come from."""
        if node.op not in FUNCTION_CALLS:
            return [_TensorOrigin("")]
        name = node.attr["f"].func.name
        function = self._functions[name]
        if name in self._clusters:
            call = _ClusterCall(name, arguments)
            self.calls.append(call)
            return [_TensorOrigin("", call, index) for index in range(len(function.ret))]
        signature = function.signature
        return self._resolve_all(
            {inner.name: inner for inner in function.node_def},
            dict(zip((argument.name for argument in signature.input_arg), arguments, strict=True)),
            [function.ret[result.name] for result in signature.output_arg],
        )
