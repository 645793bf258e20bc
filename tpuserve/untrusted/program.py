"""Finds the nodes of a metagraph, in its graph and functions, that a session run can execute."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpuserve.graph.graph_walk import reach_nodes

# The name of an attribute of functions. Grappler can replace a call of a function by a call of
# another function that has the same value of this attribute.
# Source: tensorflow/core/grappler/optimizers/implementation_selector.cc.
_IMPLEMENTS = "api_implements"

FIRST_ARGUMENT = {
    "Case": 1,
    "If": 1,
    "PartitionedCall": 0,
    "StatefulPartitionedCall": 0,
    "StatelessCase": 1,
    "StatelessIf": 1,
    "TPUPartitionedCall": 0,
}
"""Op type → the position of the input that the op's functions get as their first argument.

The functions get the inputs after it as their other arguments. BatchFunction is not in the dict,
because such ops with the same `shared_name` have one queue: the function of one op can get the
inputs of another.
"""


@dataclass(frozen=True)
class Site:
    """A node, and the function that has it.

    Attributes:
      function: the name of the function whose body has the node; empty for the main graph.
      node: a NodeDef.
    """

    function: str
    node: Any

    def __str__(self) -> str:
        place = f" in function {self.function}" if self.function else ""
        return f"node {self.node.name} ({self.node.op}){place}"


@dataclass(frozen=True)
class ReachableNodes:
    """The nodes that a session run can execute.

    Attributes:
      sites: the executed nodes of the main graph, and all nodes of each called function.
      callers: function name → the nodes that can call the function.
    """

    sites: list[Site]
    callers: Mapping[str, list[Site]]


@dataclass
class Program:
    """A metagraph with its nodes and functions by name.

    Attributes:
      meta_graph: a MetaGraphDef.
      nodes: node name → NodeDef of the main graph.
      functions: function name → FunctionDef.
    """

    meta_graph: Any
    nodes: dict[str, Any] = field(init=False)
    functions: dict[str, Any] = field(init=False)
    _alternatives: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        """Fill the dicts of nodes and functions from the MetaGraphDef."""
        graph = self.meta_graph.graph_def
        self.nodes = {node.name: node for node in graph.node}
        self.functions = {function.signature.name: function for function in graph.library.function}
        by_interface: dict[bytes, list[str]] = defaultdict(list)
        for name, function in self.functions.items():
            if _IMPLEMENTS in function.attr:
                by_interface[function.attr[_IMPLEMENTS].s].append(name)
        self._alternatives = {name: names for names in by_interface.values() for name in names}

    def arguments(self, function: str) -> list[str]:
        """Return the names of a function's arguments in order."""
        return [argument.name for argument in self.functions[function].signature.input_arg]

    def find_node(self, function: str, name: str) -> Any:
        """Look up a NodeDef by its name; None if there is none.

        Args:
          function: the function in which to search; "" for the main graph.
          name: the name of the node.
        """
        if not function:
            return self.nodes.get(name)
        body = self.functions[function].node_def
        return next((node for node in body if node.name == name), None)

    def all_sites(self) -> Iterator[Site]:
        """Yield all nodes of the graph and of all functions, even those that no run executes."""
        yield from (Site("", node) for node in self.meta_graph.graph_def.node)
        for name, function in self.functions.items():
            yield from (Site(name, node) for node in function.node_def)

    def called_functions(self, node: Any) -> set[str]:
        """Return the names of all library functions that a node names in its attributes.

        Such an attribute is a NameAttrList. It can have attributes of its own that name further
        functions. These functions are included, although the node does not pass its inputs to them.
        """
        return self._expand({node.op, *_function_names(node.attr, nested=True)})

    def directly_called_functions(self, node: Any) -> set[str]:
        """Return the names of the library functions to which a node can pass its inputs."""
        return self._expand({node.op, *_function_names(node.attr, nested=False)})

    def _expand(self, names: set[str]) -> set[str]:
        """Extend a set of functions by those that Grappler can call in their place.

        Args:
          names: the names of the functions.

        Returns:
          The names of all these functions, except functions that the library of the graph lacks.
        """
        alternatives = (self._alternatives.get(name, ()) for name in names)
        return names.union(*alternatives) & self.functions.keys()

    def reach(self, runs: Iterable[tuple[Iterable[str], frozenset[str]]]) -> ReachableNodes:
        """Find the nodes that session runs can execute.

        All nodes of a called function count as executed.

        Args:
          runs: for each run, the names of the fetched tensors or operations, and the names of the
            fed tensors, such as "x:0".
        """
        names: set[str] = set()
        for fetches, feeds in runs:
            names.update(reach_nodes(self.nodes, fetches, feeds))
        pending = [Site("", self.nodes[name]) for name in sorted(names)]
        sites: list[Site] = []
        callers: dict[str, list[Site]] = defaultdict(list)
        while pending:
            site = pending.pop()
            sites.append(site)
            for name in self.called_functions(site.node):
                if name not in callers:
                    pending += [Site(name, node) for node in self.functions[name].node_def]
                callers[name].append(site)
        return ReachableNodes(sites, callers)


def _function_names(attributes: Mapping[str, Any], *, nested: bool) -> Iterator[str]:
    """Yield the names of the functions that attributes of a node name.

    Args:
      attributes: attribute name → AttrValue.
      nested: whether to include functions that are named in the attributes of functions.
    """
    for attribute in attributes.values():
        kind = attribute.WhichOneof("value")
        if kind == "func":
            functions = [attribute.func]
        elif kind == "list":
            functions = attribute.list.func
        else:
            continue
        for function in functions:
            yield function.name
            if nested:
                yield from _function_names(function.attr, nested=True)
