"""The functions of a lowered graph, each as a graph of its own."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.compilation.translation.abstract_tensor import Shape, shape_from_proto
from tpuserve.lowering.ir.function_renaming import rename_functions
from tpuserve.saved_model.metagraph import called_functions
from tpuserve.tensorflow_internals import function_def_to_graph_def


@dataclass(frozen=True)
class FunctionBody:
    """What a function runs.

    Attributes:
      nodes: named as in a graph.
      inputs: the tensors that its arguments are, each of a placeholder.
      shapes: what the function's making left behind of theirs.
      outputs: the tensors that it returns.
      kept: nodes that run for what they do.
    """

    nodes: Sequence[NodeDef]
    inputs: list[str]
    shapes: list[Shape]
    outputs: list[str]
    kept: list[str]


class FunctionLibrary:
    """A library of functions.

    Attributes:
      library: the FunctionDefLibrary.
    """

    def __init__(self, graph: GraphDef) -> None:
        """Takes those of a graph."""
        self.library = graph.library
        self._by_name: Mapping[str, FunctionDef] = {
            each.signature.name: each for each in graph.library.function
        }
        # Where TensorFlow looks up the functions that a function calls.
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.import_graph_def(self.new_graph_def(), name="")

    def new_graph_def(self) -> Any:
        """A graph without nodes that has the library."""
        graph_def = GraphDef()
        graph_def.library.CopyFrom(self.library)
        graph_def.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION
        return graph_def

    def body(self, name: str) -> FunctionBody:
        """What a function runs."""
        function = self._by_name[name]
        with self._graph.as_default():
            graph_def, names = function_def_to_graph_def(function)
        return FunctionBody(
            nodes=graph_def.node,
            inputs=[f"{each.name}:0" for each in function.signature.input_arg],
            # TensorFlow puts the placeholders of the arguments first.
            shapes=[
                shape_from_proto(node.attr["shape"].shape) if "shape" in node.attr else None
                for node, _ in zip(graph_def.node, function.signature.input_arg, strict=False)
            ],
            outputs=[names[function.ret[each.name]] for each in function.signature.output_arg],
            kept=sorted(function.control_ret.values()),
        )

    def renamed(self, name: str) -> bytes:
        """A function and all that it calls, at any depth, whatever the names of functions are.

        Those carry numbers that differ from one export of a model to the next.
        """
        # By when each is met, so that another export meets them in the same order.
        met: dict[str, str] = {}
        pending = deque([name])
        while pending:
            each = pending.popleft()
            if each in met or each not in self._by_name:
                continue
            met[each] = f"function_{len(met)}"
            for node in self._by_name[each].node_def:
                pending.extend((node.op, *_functions_in_order(node)))
        graph = GraphDef()
        graph.library.function.extend(self._by_name[each] for each in met)
        rename_functions(graph, met)
        serialized: bytes = graph.SerializeToString(deterministic=True)
        return serialized


def _functions_in_order(node: NodeDef) -> Iterator[str]:
    """As `called_functions`, in the order of the attributes' names."""
    for attribute in sorted(node.attr):
        yield from called_functions(NodeDef(attr={attribute: node.attr[attribute]}))
