"""Finds the XLA clusters that a signature runs, with their input shapes at one batch size.

Nothing runs and no variable is read: TensorFlow's shape inference propagates the shapes of the
signature's inputs through the lowered graph, from one function call to the next.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.compilation.translation import abstract_tensor
from tpuserve.compilation.translation.abstract_tensor import AbstractTensor
from tpuserve.compilation.translation.function_graphs import FunctionLibrary
from tpuserve.errors import InvalidInput
from tpuserve.lowering.ir.outlining import MUST_COMPILE
from tpuserve.saved_model.metagraph import called_functions

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_LOOPS = ("While", "StatelessWhile")
_BATCH = "BatchFunction"


@dataclass(frozen=True)
class XlaCluster:
    """A function that XLA compiles as a whole, and the arguments of one call.

    Attributes:
      function: Name of the function in the lowered graph.
      arguments: Type, shape and variable of each argument.
    """

    function: str
    arguments: tuple[AbstractTensor, ...]


class ClusterFinder:
    """Propagates shapes through a lowered graph and collects the XLA clusters on the way.

    Attributes:
      clusters: The clusters, in the order in which they run.
      paddings: One sentence for each batch function that pads the rows.
    """

    def __init__(self, graph: GraphDef) -> None:
        """Prepare a search that starts in the main graph.

        Args:
          graph: A lowered graph with its function library.
        """
        self._nodes = graph.node
        self._functions = FunctionLibrary(graph)
        self.clusters: list[XlaCluster] = []
        self.paddings: list[str] = []

    def trace(
        self, feeds: Mapping[str, AbstractTensor], fetches: Sequence[str]
    ) -> list[AbstractTensor]:
        """Infer the types and shapes of fetched tensors of the main graph.

        The clusters that the fetches depend on are added to `clusters`.

        Args:
          feeds: Name of a fed tensor, such as "x:0" → its abstract tensor.
          fetches: Names of tensors.

        Raises:
          InvalidInput: The graph does not accept inputs of these shapes, or a batch function does
            not accept as many rows.
        """
        return self._trace_graph(self._nodes, feeds, fetches, ())

    def _trace_graph(
        self,
        nodes: Sequence[NodeDef],
        feeds: Mapping[str, AbstractTensor],
        fetches: Sequence[str],
        control_outputs: Sequence[str],
    ) -> list[AbstractTensor]:
        """Propagate shapes through the main graph or through the body of one called function.

        Args:
          nodes: The nodes of the graph.
          feeds: Tensor name → abstract tensor.
          fetches: Names of the tensors to return.
          control_outputs: Names of nodes that run for their side effects.
        """
        scope = _GraphScope(nodes, self._functions, feeds)
        roots = [*(_producer(tensor) for tensor in fetches), *control_outputs]
        for node in scope.ordered_calls(roots):
            inputs = scope.lookup([tensor for tensor in node.input if not tensor.startswith("^")])
            scope.set_outputs(node.name, self._trace_call(node, inputs))
        return scope.lookup(fetches)

    def _trace_call(self, node: NodeDef, inputs: Sequence[AbstractTensor]) -> list[AbstractTensor]:
        """Propagate shapes through the functions that a node calls; return the node's outputs."""
        if node.op in _CALLS:
            is_cluster = node.attr[MUST_COMPILE].b
            return self._trace_function(node.attr["f"].func.name, inputs, is_cluster=is_cluster)
        if node.op == _BATCH:
            return self._trace_batch_function(node, inputs)
        if node.op in _LOOPS:
            self._trace_function(node.attr["cond"].func.name, inputs)
            results = self._trace_function(node.attr["body"].func.name, inputs)
            return abstract_tensor.merge(inputs, results)
        # The first input of a conditional selects the branch; the other inputs are the branch's
        # arguments.
        branches = list(dict.fromkeys(called_functions(node)))
        results = self._trace_function(branches[0], inputs[1:])
        for branch in branches[1:]:
            results = abstract_tensor.merge(results, self._trace_function(branch, inputs[1:]))
        return results

    def _trace_batch_function(
        self, node: NodeDef, inputs: Sequence[AbstractTensor]
    ) -> list[AbstractTensor]:
        """Propagate shapes through a BatchFunction, which pads a batch to an allowed size."""
        function = node.attr["f"].func.name
        count = len(node.attr["Tin"].list.type)
        rows = next((tensor.shape[0] for tensor in inputs[:count] if tensor.shape), None)
        if rows is None:
            return self._trace_function(function, inputs)
        allowed = list(node.attr["allowed_batch_sizes"].list.i)
        largest = allowed[-1] if allowed else node.attr["max_batch_size"].i
        if rows > largest:
            raise InvalidInput(
                f"a batch of {rows} rows does not fit batch function {node.name!r}, which accepts "
                f"up to {largest}. Use a smaller batch size."
            )
        # Without allowed sizes, the batch keeps its number of rows.
        padded_rows = next(size for size in allowed if size >= rows) if allowed else rows
        if padded_rows != rows:
            self.paddings.append(f"the model pads {rows} rows to {padded_rows}")
        padded = [tensor.with_rows(padded_rows) for tensor in inputs[:count]]
        results = self._trace_function(function, [*padded, *inputs[count:]])
        return [tensor.with_rows(rows) for tensor in results]

    def _trace_function(
        self, name: str, inputs: Sequence[AbstractTensor], *, is_cluster: bool = False
    ) -> list[AbstractTensor]:
        """Propagate shapes through a function's body; add a cluster's function to `clusters`."""
        body = self._functions.body(name)
        # Complete the shapes of the call by those in the function's definition, which may be more
        # exact, for example for the result of a table lookup.
        refined = [tensor.refine(shape) for tensor, shape in zip(inputs, body.shapes, strict=True)]
        if is_cluster:
            self.clusters.append(XlaCluster(name, tuple(refined)))
        feeds = dict(zip(body.inputs, refined, strict=True))
        return self._trace_graph(body.nodes, feeds, body.outputs, body.control_outputs)


class _GraphScope:
    """The nodes of one graph or function body, and its abstract tensors so far."""

    def __init__(
        self,
        nodes: Sequence[NodeDef],
        functions: FunctionLibrary,
        feeds: Mapping[str, AbstractTensor],
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._functions = functions
        self._known = {_full_name(name): tensor for name, tensor in feeds.items()}
        self._boundary = {_producer(tensor) for tensor in self._known}

    def ordered_calls(self, roots: Sequence[str]) -> Iterator[NodeDef]:
        """Yield the function calls that `roots` depend on, each after the calls it depends on."""
        for name in _topological_order(self._nodes, roots, self._boundary):
            if self._nodes[name].op in (*_CALLS, *_BRANCHES, *_LOOPS, _BATCH):
                yield self._nodes[name]

    def set_outputs(self, node: str, outputs: Sequence[AbstractTensor]) -> None:
        """Record the abstract outputs of a call."""
        self._boundary.add(node)
        self._known.update({f"{node}:{index}": tensor for index, tensor in enumerate(outputs)})

    def lookup(self, tensors: Sequence[str]) -> list[AbstractTensor]:
        """Return the abstract tensors of tensor names; infer those that are not recorded."""
        names = [_full_name(tensor) for tensor in tensors]
        unknown = [name for name in names if name not in self._known]
        known = dict(self._known)
        if unknown:
            known.update(zip(unknown, self._infer(unknown), strict=True))
        return [known[name] for name in names]

    def _infer(self, tensors: Sequence[str]) -> list[AbstractTensor]:
        """Infer abstract tensors from recorded ones by importing the nodes between them."""
        graph_def = self._functions.new_graph_def()
        inputs_used: dict[str, AbstractTensor] = {}
        order = _topological_order(
            self._nodes, [_producer(tensor) for tensor in tensors], self._boundary
        )
        for name in order:
            if name in self._boundary:
                continue
            node = graph_def.node.add()
            node.CopyFrom(self._nodes[name])
            data_inputs = [tensor for tensor in node.input if not tensor.startswith("^")]
            del node.input[:]
            node.input.extend(data_inputs)
            full_names = [_full_name(tensor) for tensor in data_inputs]
            inputs_used.update(
                {full: self._known[full] for full in full_names if full in self._known}
            )
        with tf.Graph().as_default():
            placeholders = {
                name: abstract_tensor.make_placeholder(tensor)
                for name, tensor in inputs_used.items()
            }
            try:
                imported = tf.import_graph_def(
                    graph_def, input_map=placeholders, return_elements=list(tensors), name=""
                )
            except ValueError as error:
                raise InvalidInput(
                    f"the graph does not accept inputs of these shapes: {error}. Use another "
                    f"batch size."
                ) from error
            return [
                self._find_forwarded(placeholders, tensor)
                or abstract_tensor.describe_tensor(tensor)
                for tensor in imported
            ]

    def _find_forwarded(
        self, placeholders: Mapping[str, Any], tensor: Any
    ) -> AbstractTensor | None:
        """Follow Identity ops back to a placeholder; return the recorded tensor that it replaced.

        Returns:
          The recorded tensor; None if a node other than Identity computes the tensor.
        """
        while tensor.op.type == "Identity":
            tensor = tensor.op.inputs[0]
        for name, placeholder in placeholders.items():
            if placeholder is tensor:
                return self._known[name]
        return None


def _topological_order(
    nodes: Mapping[str, NodeDef], roots: Sequence[str], boundary: "set[str]"
) -> list[str]:
    """Return the nodes that the roots depend on, producers first.

    Args:
      nodes: Name → node.
      roots: Names of the nodes to start from.
      boundary: Names of the nodes whose inputs are not followed.
    """
    order: dict[str, None] = {}
    visited: set[str] = set()
    pending = [(name, False) for name in reversed(roots)]
    while pending:
        name, is_done = pending.pop()
        if is_done:
            order[name] = None
            continue
        if name in visited or name not in nodes:
            continue
        visited.add(name)
        pending.append((name, True))
        if name not in boundary:
            pending.extend((_producer(tensor), False) for tensor in reversed(nodes[name].input))
    return list(order)


def _producer(tensor: str) -> str:
    """Return the node that a tensor or control input comes from: "x" for "x:0" or "^x"."""
    return tensor.lstrip("^").partition(":")[0]


def _full_name(tensor: str) -> str:
    """Return a tensor's name with the output index: "x:0" for "x" or "x:0"."""
    return tensor if ":" in tensor else f"{tensor}:0"
