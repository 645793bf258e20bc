"""Finds the XLA clusters that a signature runs, and the shapes of their arguments.

An XLA cluster is a function that XLA compiles as a whole. The graph of the signature must not have
TPU ops.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.errors import InvalidInput
from tpuserve.graph.graph_walk import FUNCTION_CALLS
from tpuserve.graph.references import attribute_value, data_inputs, node_name, tensor_name
from tpuserve.lowering.ir.outlining import MUST_COMPILE
from tpuserve.saved_model.metagraph import called_functions
from tpuserve.stablehlo import abstract_tensor
from tpuserve.stablehlo.abstract_tensor import AbstractTensor
from tpuserve.stablehlo.function_graphs import FunctionLibrary

_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_LOOPS = ("While", "StatelessWhile")
_BATCH = "BatchFunction"


@dataclass(frozen=True)
class XlaCluster:
    """A function that XLA compiles as a whole, with the types and shapes of its arguments."""

    function: str
    arguments: tuple[AbstractTensor, ...]


class ClusterFinder:
    """Propagates shapes through a graph, and collects the XLA clusters that it calls.

    Attributes:
      paddings: A sentence for the user, such as "the model pads 3 rows to 4", for each
        BatchFunction op that pads the batch to an allowed size.

    Args:
      graph: A GraphDef without TPU ops, with its function library.
    """

    def __init__(self, graph: GraphDef) -> None:
        self._nodes = graph.node
        self._functions = FunctionLibrary(graph)
        self.clusters: list[XlaCluster] = []
        self.paddings: list[str] = []

    def trace(
        self, feeds: Mapping[str, AbstractTensor], fetches: Sequence[str]
    ) -> list[AbstractTensor]:
        """Infer the types and shapes of tensors of the main graph, and collect XLA clusters.

        The clusters that these tensors depend on are added to `clusters`.

        Args:
          feeds: Name of an input of the signature, such as "x:0" → its type and shape.
          fetches: Names of the tensors to infer, such as the outputs of the signature.

        Raises:
          InvalidInput: The graph does not accept inputs of these shapes, or the inputs have more
            rows than a BatchFunction op accepts.
        """
        return self._trace_graph(self._nodes, feeds, fetches, ())

    def _trace_graph(
        self,
        nodes: Sequence[NodeDef],
        feeds: Mapping[str, AbstractTensor],
        fetches: Sequence[str],
        control_outputs: Sequence[str],
    ) -> list[AbstractTensor]:
        """Propagate shapes through the main graph or the body of a function."""
        scope = _GraphScope(nodes, self._functions, feeds)
        roots = [*(node_name(tensor) for tensor in fetches), *control_outputs]
        for node in scope.ordered_calls(roots):
            inputs = scope.lookup(data_inputs(node))
            scope.set_outputs(node.name, self._trace_call(node, inputs))
        return scope.lookup(fetches)

    def _trace_call(self, node: NodeDef, inputs: Sequence[AbstractTensor]) -> list[AbstractTensor]:
        """Propagate shapes through the functions that a node calls."""
        if node.op in FUNCTION_CALLS:
            is_cluster = attribute_value(node, MUST_COMPILE).b
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
        """Propagate shapes through a BatchFunction op, which can pad a batch to an allowed size."""
        function = node.attr["f"].func.name
        count = len(node.attr["Tin"].list.type)
        rows = next((tensor.shape[0] for tensor in inputs[:count] if tensor.shape), None)
        if rows is None:
            return self._trace_function(function, inputs)
        allowed = list(attribute_value(node, "allowed_batch_sizes").list.i)
        largest = allowed[-1] if allowed else attribute_value(node, "max_batch_size").i
        if rows > largest:
            raise InvalidInput(
                f"a batch of {rows} rows does not fit batch function {node.name!r}, which accepts "
                f"up to {largest}. Use a smaller batch size."
            )
        # Without allowed_batch_sizes, a BatchFunction does not pad.
        padded_rows = next(size for size in allowed if size >= rows) if allowed else rows
        if padded_rows != rows:
            self.paddings.append(f"the model pads {rows} rows to {padded_rows}")
        padded = [tensor.with_rows(padded_rows) for tensor in inputs[:count]]
        results = self._trace_function(function, [*padded, *inputs[count:]])
        return [tensor.with_rows(rows) for tensor in results]

    def _trace_function(
        self, name: str, inputs: Sequence[AbstractTensor], *, is_cluster: bool = False
    ) -> list[AbstractTensor]:
        body = self._functions.body(name)
        # If a dimension is unknown at the call, take it from the shapes that are recorded in the
        # FunctionDef.
        refined = [tensor.refine(shape) for tensor, shape in zip(inputs, body.shapes, strict=True)]
        if is_cluster:
            self.clusters.append(XlaCluster(name, tuple(refined)))
        feeds = dict(zip(body.inputs, refined, strict=True))
        return self._trace_graph(body.nodes, feeds, body.outputs, body.control_outputs)


class _GraphScope:
    """The nodes of a graph or function body, and the tensors whose shapes are known so far."""

    def __init__(
        self,
        nodes: Sequence[NodeDef],
        functions: FunctionLibrary,
        feeds: Mapping[str, AbstractTensor],
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._functions = functions
        self._known = {tensor_name(name): tensor for name, tensor in feeds.items()}
        self._boundary = {node_name(tensor) for tensor in self._known}

    def ordered_calls(self, roots: Sequence[str]) -> Iterator[NodeDef]:
        """Yield the nodes that call functions, each after those that it depends on."""
        for name in _topological_order(self._nodes, roots, self._boundary):
            if self._nodes[name].op in (*FUNCTION_CALLS, *_BRANCHES, *_LOOPS, _BATCH):
                yield self._nodes[name]

    def set_outputs(self, node: str, outputs: Sequence[AbstractTensor]) -> None:
        """Record the types and shapes of the outputs of a node that calls a function."""
        self._boundary.add(node)
        self._known.update({f"{node}:{index}": tensor for index, tensor in enumerate(outputs)})

    def lookup(self, tensors: Sequence[str]) -> list[AbstractTensor]:
        """Return the types and shapes of named tensors; infer those that are not known yet."""
        names = [tensor_name(tensor) for tensor in tensors]
        unknown = [name for name in names if name not in self._known]
        known = dict(self._known)
        if unknown:
            known.update(zip(unknown, self._infer(unknown), strict=True))
        return [known[name] for name in names]

    def _infer(self, tensors: Sequence[str]) -> list[AbstractTensor]:
        """Infer the types and shapes of tensors from those of tensors that are known."""
        graph_def = self._functions.new_graph_def()
        inputs_used: dict[str, AbstractTensor] = {}
        order = _topological_order(
            self._nodes, [node_name(tensor) for tensor in tensors], self._boundary
        )
        for name in order:
            if name in self._boundary:
                continue
            node = graph_def.node.add()
            node.CopyFrom(self._nodes[name])
            node.input[:] = data_inputs(node)
            full_names = [tensor_name(tensor) for tensor in node.input]
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
        """Find the known tensor from which Identity ops, and no other ops, lead to a tensor."""
        while tensor.op.type == "Identity":
            tensor = tensor.op.inputs[0]
        for name, placeholder in placeholders.items():
            if placeholder is tensor:
                return self._known[name]
        return None


def _topological_order(
    nodes: Mapping[str, NodeDef], roots: Sequence[str], boundary: "set[str]"
) -> list[str]:
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
            pending.extend((node_name(tensor), False) for tensor in reversed(nodes[name].input))
    return list(order)
