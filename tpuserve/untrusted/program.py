"""Finds the nodes that the session runs of a server can execute in an untrusted metagraph."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuserve.graph.graph_walk import reach_nodes
from tpuserve.graph.pruning import needed_nodes
from tpuserve.graph.references import node_name, tensor_name
from tpuserve.saved_model import initialisation
from tpuserve.saved_model.signature import INIT_SIGNATURE

# Grappler can call another function that also has this attribute in place of a function.
# Source: tensorflow/core/grappler/optimizers/implementation_selector.cc.
_IMPLEMENTS = "api_implements"
FIRST_ARGUMENT: Mapping[str, int] = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall"), 0),
    **dict.fromkeys(("Case", "If", "StatelessCase", "StatelessIf"), 1),
}
"""Op type → the position of the input that its functions get as their first argument."""


@dataclass(frozen=True)
class Site:
    """A node (a NodeDef), and the function that has it: "" for the main graph."""

    function: str
    node: Any

    def __str__(self) -> str:
        place = f" in function {self.function}" if self.function else ""
        return f"node {self.node.name} ({self.node.op}){place}"


@dataclass(frozen=True)
class Run:
    """One kind of session run that a server makes with a metagraph, such as a request.

    Attributes:
      callers: function name → the nodes that can call it, and whether they pass it their inputs.
    """

    purpose: str
    sites: list[Site]
    callers: Mapping[str, list[tuple[Site, bool]]]
    paths: frozenset[str]
    fed: frozenset[str]

    def is_own_path(self, function: str, reference: str) -> bool:
        """Return whether a tensor is the path of a file of the model itself."""
        return not function and tensor_name(reference) in self.paths


class Program:
    """A metagraph with its functions.

    Attributes:
      nodes: function name, "" for the main graph → node name → NodeDef.
    """

    def __init__(self, meta_graph: Any) -> None:
        graph = meta_graph.graph_def
        self.meta_graph = meta_graph
        self.functions = {function.signature.name: function for function in graph.library.function}
        bodies = {name: function.node_def for name, function in self.functions.items()}
        self.nodes = {
            name: {node.name: node for node in body}
            for name, body in {**bodies, "": graph.node}.items()
        }
        self.arguments = {
            name: {each.name: index for index, each in enumerate(function.signature.input_arg)}
            for name, function in self.functions.items()
        }
        self._with_lists = {
            name
            for name, function in self.functions.items()
            if any(each.number_attr or each.type_list_attr for each in function.signature.input_arg)
        }
        self._alternatives = {
            name for name, function in self.functions.items() if _IMPLEMENTS in function.attr
        }

    def all_sites(self) -> Iterator[Site]:
        """Yield all nodes of the graph and of all functions, even those that no run executes."""
        yield from (Site("", node) for node in self.meta_graph.graph_def.node)
        for name, function in self.functions.items():
            yield from (Site(name, node) for node in function.node_def)

    def runs(self, directory: Path) -> list[Run]:
        """Return the restore of the variables, the initialisation, and the requests."""
        graph, saver, nodes = self.meta_graph, self.meta_graph.saver_def, self.nodes[""]
        assets = frozenset(map(tensor_name, initialisation.find_assets(graph, directory)))
        constants = frozenset(
            name
            for name in assets
            if name.endswith(":0")
            and node_name(name) in nodes
            and initialisation.is_path_constant(nodes[node_name(name)])
        )
        filename = frozenset({tensor_name(saver.filename_tensor_name)})
        init_op = initialisation.find_init_op(graph, directory)
        return [
            self._run(
                "the restore of the variables",
                reach_nodes(nodes, [saver.restore_op_name], filename),
                constants | filename,
            ),
            self._run(
                "the initialisation", reach_nodes(nodes, [init_op], assets), constants | assets
            ),
            # A path that a signature lets clients feed is not one of the model's own.
            self._run("a request", self._requested(), constants - self._fed(), self._fed()),
        ]

    def load(self) -> Run:
        """Return all that TensorFlow imports and may run, to check how much memory it needs."""
        names = sorted(needed_nodes(self.meta_graph) & self.nodes[""].keys())
        return self._run("the load", names, frozenset(), self._fed())

    def passed(
        self, run: Run, function: str, index: int, first: Mapping[str, int] = FIRST_ARGUMENT
    ) -> Iterator[tuple[Site, int] | None]:
        """Yield the input that each call of a function passes as an argument; None if unknown."""
        for site, is_direct in run.callers[function]:
            offset = 0 if site.node.op in self.functions else first.get(site.node.op)
            is_known = is_direct and function not in self._with_lists
            yield (site, index + offset) if is_known and offset is not None else None

    def _fed(self) -> frozenset[str]:
        return frozenset().union(*(feeds for feeds, _ in self._signatures()))

    def _requested(self) -> set[str]:
        nodes = self.nodes[""]
        return {
            name
            for feeds, fetches in self._signatures()
            for name in reach_nodes(nodes, fetches, feeds)
        }

    def _signatures(self) -> Iterator[tuple[frozenset[str], list[str]]]:
        for name, signature in self.meta_graph.signature_def.items():
            if name != INIT_SIGNATURE:
                yield (
                    frozenset(tensor_name(info.name) for info in signature.inputs.values()),
                    [info.name for info in signature.outputs.values()],
                )

    def _run(
        self,
        purpose: str,
        names: Iterable[str],
        paths: frozenset[str],
        fed: frozenset[str] = frozenset(),
    ) -> Run:
        pending = [Site("", self.nodes[""][name]) for name in sorted(names)]
        sites: list[Site] = []
        callers: dict[str, list[tuple[Site, bool]]] = defaultdict(list)
        while pending:
            site = pending.pop()
            sites.append(site)
            called = self._called(site.node, nested=True)
            direct = self._called(site.node, nested=False) if called else called
            for name in sorted(called):
                if name not in callers:
                    pending += [Site(name, node) for node in self.functions[name].node_def]
                callers[name].append((site, name in direct))
        return Run(purpose, sites, callers, paths, fed)

    def _called(self, node: Any, *, nested: bool) -> set[str]:
        names = {node.op, *_function_names(node.attr, nested)} & self.functions.keys()
        return names | self._alternatives if names & self._alternatives else names


def _function_names(attributes: Mapping[str, Any], nested: bool) -> Iterator[str]:
    for attribute in attributes.values():
        kind = attribute.WhichOneof("value")
        functions = [attribute.func] if kind == "func" else attribute.list.func
        for function in functions if kind in ("func", "list") else ():
            yield function.name
            if nested:
                yield from _function_names(function.attr, nested)
