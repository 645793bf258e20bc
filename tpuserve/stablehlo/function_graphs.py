"""Converts the functions of a GraphDef to graphs, so that they can be imported by themselves."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.lowering.ir.function_renaming import rename_functions
from tpuserve.saved_model.metagraph import called_functions
from tpuserve.stablehlo.abstract_tensor import Shape, shape_from_proto
from tpuserve.tensorflow_internals import function_def_to_graph_def


@dataclass(frozen=True)
class FunctionBody:
    """The body of a function, converted to the nodes of a graph.

    Attributes:
      nodes: The NodeDefs. Their inputs are names as in a GraphDef ("node:0") and not as in a
        FunctionDef ("node:output:0").
    """

    nodes: Sequence[NodeDef]
    inputs: list[str]
    shapes: list[Shape]
    outputs: list[str]
    control_outputs: list[str]


class FunctionLibrary:
    """The functions of a GraphDef without TPU ops."""

    def __init__(self, graph: GraphDef) -> None:
        self.library = graph.library
        self._by_name: Mapping[str, FunctionDef] = {
            function.signature.name: function for function in graph.library.function
        }
        # Import all functions into a tf.Graph. When TensorFlow converts a function to a graph, it
        # searches the default graph for the functions that this function calls.
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.import_graph_def(self.new_graph_def(), name="")

    def new_graph_def(self) -> Any:
        """Return a new GraphDef that has all functions in its library and no nodes."""
        graph_def = GraphDef()
        graph_def.library.CopyFrom(self.library)
        graph_def.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION
        return graph_def

    def body(self, name: str) -> FunctionBody:
        """Convert the body of a function of the library to the nodes of a graph."""
        function = self._by_name[name]
        with self._graph.as_default():
            graph_def, tensor_names = function_def_to_graph_def(function)
        arguments, results = function.signature.input_arg, function.signature.output_arg
        return FunctionBody(
            nodes=graph_def.node,
            inputs=[f"{argument.name}:0" for argument in arguments],
            # The first nodes of the graph are placeholders for the arguments. Read the shapes from
            # them.
            shapes=[
                shape_from_proto(node.attr["shape"].shape) if "shape" in node.attr else None
                for node, _ in zip(graph_def.node, arguments, strict=False)
            ],
            outputs=[tensor_names[function.ret[result.name]] for result in results],
            control_outputs=sorted(function.control_ret.values()),
        )

    def reachable(self, name: str) -> list[str]:
        """Return the name of a function, and those of all functions that it calls, even indirectly.

        The names are in the order in which a breadth-first search finds the calls.
        """
        names: dict[str, None] = {}
        pending = deque([name])
        while pending:
            function_name = pending.popleft()
            if function_name in names or function_name not in self._by_name:
                continue
            names[function_name] = None
            for node in self._by_name[function_name].node_def:
                pending.extend((node.op, *_called_functions_sorted(node)))
        return list(names)

    def serialize_normalized(self, name: str) -> bytes:
        """Serialise a function and all functions that it calls, with normalised function names.

        Function names contain numbers that differ between exports of the same model.
        """
        new_names = {
            function_name: f"function_{number}"
            for number, function_name in enumerate(self.reachable(name))
        }
        graph = GraphDef()
        graph.library.function.extend(self._by_name[function_name] for function_name in new_names)
        rename_functions(graph, new_names)
        for function in graph.library.function:
            # When TensorFlow imports a function, it can add an empty entry to `arg_attr` for each
            # argument. Remove these entries, so that the bytes are always the same.
            for index in [
                index for index, attributes in function.arg_attr.items() if not attributes.attr
            ]:
                del function.arg_attr[index]
        serialized: bytes = graph.SerializeToString(deterministic=True)
        return serialized


def _called_functions_sorted(node: NodeDef) -> Iterator[str]:
    for attribute in sorted(node.attr):
        yield from called_functions(NodeDef(attr={attribute: node.attr[attribute]}))
