"""A piece of a lowered graph as StableHLO, as TensorFlow's bridge to XLA translates it."""

import hashlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef

from tpuserve.compilation.translation import uninitialized
from tpuserve.compilation.translation.abstract_tensor import VariableSpec
from tpuserve.compilation.translation.cluster_finder import XlaCluster
from tpuserve.compilation.translation.eager_functions import register_functions
from tpuserve.compilation.translation.function_graphs import FunctionLibrary
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.runtime import xla_errors
from tpuserve.runtime.xla_errors import UnsupportedOp
from tpuserve.tensorflow_internals import eager_context

# So that a changed translation does not find what an older one had compiled.
_FORMAT = 2


class StableHloTranslator:
    """Translates pieces of one graph.

    Variables become arguments of the module, never constants. They are made for that once, without
    values: the bridge asks for their shapes alone.
    """

    def __init__(
        self, graph: GraphDef, line_of: Callable[[str], str | None] = lambda node: None
    ) -> None:
        """Translates nothing yet.

        Args:
          graph: a lowered graph with its function library.
          line_of: "node@function" → the line of user code that made it, where it is known.
        """
        self._line_of = line_of
        self._functions = FunctionLibrary(graph)
        self._variables: dict[VariableSpec, Any] = {}

    def translate(self, piece: XlaCluster) -> bytes:
        """The module of a piece, serialized in StableHLO's portable form.

        Args:
          piece: its arguments are known in all dimensions.

        Raises:
          UnsupportedOnTpu: the bridge has no form for something in it; says for what.
        """
        body = self._functions.body(piece.function)
        placeholders = {each.partition(":")[0] for each in body.inputs}
        graph_def = self._functions.new_graph_def()
        graph_def.node.extend(each for each in body.nodes if each.name not in placeholders)

        def computation(*given: Any) -> Any:
            graph, tensors = tf.compat.v1.get_default_graph(), iter(given)
            input_map = {
                name: next(tensors)
                if each.variable is None
                else graph.capture(self._variable(each.variable).handle)
                for name, each in zip(body.inputs, piece.arguments, strict=True)
            }
            returned = [*body.outputs, *body.kept]
            found = tf.import_graph_def(
                graph_def, input_map=input_map, return_elements=returned, name=""
            )
            with tf.control_dependencies(found[len(body.outputs) :]):
                return [tf.identity(each) for each in found[: len(body.outputs)]]

        fed = [each for each in piece.arguments if each.variable is None]
        with eager_context.eager_mode():
            try:
                function = tf.function(computation, jit_compile=True, autograph=False)
                specs = [tf.TensorSpec(each.shape, each.dtype) for each in fed]
                with register_functions(graph_def):
                    generate = function.experimental_get_compiler_ir(*specs)
                    module: bytes = generate(stage="stablehlo_serialized")
            except (ValueError, TypeError, tf.errors.OpError) as error:
                raise UnsupportedOnTpu(self._told(error, piece)) from error
        return module

    def fingerprint(self, piece: XlaCluster) -> str:
        """What tells the module of a piece from all others, without making it.

        Another export of the same model has the same.
        """
        digest = hashlib.sha256(f"{_FORMAT} {tf.__version__} {piece.arguments}".encode())
        digest.update(self._functions.renamed(piece.function))
        return digest.hexdigest()

    def _variable(self, variable: VariableSpec) -> Any:
        if variable not in self._variables:
            with tf.init_scope():
                assert variable.shape is not None
                shape = tuple(size or 0 for size in variable.shape)
                value = uninitialized.make_uninitialized_tensor(shape, variable.dtype)
                self._variables[variable] = tf.Variable(value)
        return self._variables[variable]

    def _told(self, error: Exception, piece: XlaCluster) -> str:
        text = getattr(error, "message", None) or str(error)
        refused = [
            *xla_errors.find_unsupported_ops(text),
            *xla_errors.find_nonconstant_inputs(text),
        ]
        if refused:
            return f"XLA refuses {'; '.join(self._place(each, piece) for each in refused)}"
        lines = [line.strip() for line in text.splitlines()]
        return next((line for line in lines if line), type(error).__name__)

    def _place(self, refused: UnsupportedOp, piece: XlaCluster) -> str:
        line = self._line_of(f"{refused.node}@{piece.function}")
        made = f", made at {line}" if line else ""
        number = refused.input_number
        why = "" if number is None else f", whose input {number} must be a constant"
        return f"{refused.op} ({refused.node!r}{made}){why}"
