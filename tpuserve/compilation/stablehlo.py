"""A piece of a lowered graph as StableHLO, as TensorFlow's bridge to XLA translates it."""

import hashlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.eager import context

from tpuserve.compilation.arguments import Variable
from tpuserve.compilation.tracing import Piece, body_of
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.metagraph import functions_of

# So that a changed translation does not find what an older one had compiled.
_FORMAT = 1


class Translator:
    """Translates pieces of one graph.

    Variables become arguments of the module, never constants. They are made for that once, without
    values: the bridge asks for their shapes alone.
    """

    def __init__(self, graph: GraphDef) -> None:
        """Translates nothing yet.

        Args:
          graph: a lowered graph with its function library.
        """
        self._library = graph.library
        self._functions: Mapping[str, FunctionDef] = {
            each.signature.name: each for each in graph.library.function
        }
        self._variables: dict[Variable, Any] = {}

    def translate(self, piece: Piece) -> bytes:
        """The module of a piece, serialized in StableHLO's portable form.

        Args:
          piece: its arguments are known in all dimensions.

        Raises:
          UnsupportedOnTpu: the bridge has no form for something in it; says for what.
        """
        nodes, inputs, outputs, kept = body_of(self._functions[piece.function])
        body = GraphDef()
        placeholders = {each.partition(":")[0] for each in inputs}
        body.node.extend(each for each in nodes if each.name not in placeholders)
        body.library.CopyFrom(self._library)
        body.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION

        def computation(*given: Any) -> Any:
            graph, tensors = tf.compat.v1.get_default_graph(), iter(given)
            input_map = {
                name: next(tensors)
                if each.variable is None
                else graph.capture(self._variable(each.variable).handle)
                for name, each in zip(inputs, piece.arguments, strict=True)
            }
            found = tf.import_graph_def(
                body, input_map=input_map, return_elements=[*outputs, *kept], name=""
            )
            with tf.control_dependencies(found[len(outputs) :]):
                return [tf.identity(each) for each in found[: len(outputs)]]

        fed = [each for each in piece.arguments if each.variable is None]
        with context.eager_mode():
            try:
                function = tf.function(computation, jit_compile=True, autograph=False)
                specs = [tf.TensorSpec(each.shape, each.dtype) for each in fed]
                generate = function.experimental_get_compiler_ir(*specs)
                module: bytes = generate(stage="stablehlo_serialized")
            except (ValueError, TypeError, tf.errors.OpError) as error:
                raise UnsupportedOnTpu(_told(error)) from error
        return module

    def fingerprint(self, piece: Piece) -> str:
        """What tells the module of a piece from all others, without making it."""
        digest = hashlib.sha256(f"{_FORMAT} {tf.__version__} {piece.arguments}".encode())
        for name in sorted(self._closure(piece.function)):
            digest.update(self._functions[name].SerializeToString(deterministic=True))
        digest.update(piece.function.encode())
        return digest.hexdigest()

    def _closure(self, name: str) -> set[str]:
        found: set[str] = set()
        pending = [name]
        while pending:
            each = pending.pop()
            if each in found or each not in self._functions:
                continue
            found.add(each)
            for node in self._functions[each].node_def:
                pending.extend((node.op, *functions_of(node)))
        return found

    def _variable(self, variable: Variable) -> Any:
        if variable not in self._variables:
            with tf.init_scope():
                # Memory that is never written to takes no room, be it more than the machine has.
                value = tf.raw_ops.Empty(shape=variable.shape, dtype=variable.dtype, init=False)
                self._variables[variable] = tf.Variable(value)
        return self._variables[variable]


def _told(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error)
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line), type(error).__name__)
