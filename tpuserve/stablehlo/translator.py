"""Translates XLA clusters to StableHLO modules.

An XLA cluster is a function that XLA compiles as a whole.
"""

import hashlib
import itertools
import math
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef

from tpuserve.errors import UnsupportedOnTpu
from tpuserve.graph.references import attribute_value, node_name
from tpuserve.lowering.ir.function_renaming import rename_functions
from tpuserve.saved_model.stablehlo_modules import CALL_MODULE, describe_module
from tpuserve.stablehlo import xla_errors
from tpuserve.stablehlo.abstract_tensor import VariableSpec
from tpuserve.stablehlo.cluster_finder import XlaCluster
from tpuserve.stablehlo.function_graphs import FunctionBody, FunctionLibrary
from tpuserve.tensorflow_internals import eager_context

_numbers = itertools.count()


@contextmanager
def register_functions(graph: GraphDef) -> Iterator[None]:
    """Register the functions of a graph with TensorFlow's eager runtime during a with block.

    If a tf.function imports the graph, the functions that the graph calls, such as bodies of loops,
    do not become part of the tf.function.
    """
    number = next(_numbers)
    names = [function.signature.name for function in graph.library.function]
    rename_functions(graph, {name: f"{name}_compiled_{number}" for name in names})
    runtime = eager_context.context()
    registered: list[str] = []
    try:
        for function in graph.library.function:
            runtime.add_function_def(function)
            registered.append(function.signature.name)
        yield
    finally:
        for name in registered:
            runtime.remove_function(name)


# The value of Linux's flag MAP_NORESERVE, which Python's mmap module does not define. With this
# flag, Linux reserves no memory for mapped pages: they take memory only when they are written.
_MAP_NORESERVE = 0x4000


def make_uninitialized_tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an eager tensor of zeros that takes no memory, however large it is.

    Tensors of dtypes that tf.bitcast does not support, such as bool, take memory.
    """
    if not (dtype.is_floating or dtype.is_integer or dtype.is_complex) or dtype.is_quantized:
        return tf.zeros(shape, dtype)
    num_bytes = math.prod(shape) * dtype.size
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    # mmap does not accept a length of zero. For an empty tensor, map one byte.
    pages = mmap.mmap(-1, max(num_bytes, 1), flags=flags)
    raw = np.frombuffer(pages, np.uint8, num_bytes)
    byte_tensor = tf.experimental.dlpack.from_dlpack(raw.__dlpack__())
    byte_shape = shape if dtype.size == 1 else (*shape, dtype.size)
    return tf.bitcast(tf.reshape(byte_tensor, byte_shape), dtype)


# A part of TensorFlow's error message if a module cannot be written in StableHLO's portable form,
# although the translation succeeded.
_NOT_SERIALISED = "failed to serialize module"


def generate_stablehlo(generate: Callable[..., bytes | str]) -> bytes:
    """Return a tf.function as a StableHLO module, to be read by `jax_internals.parse_stablehlo`.

    Returns:
      The module in StableHLO's portable form. TensorFlow cannot write this form if the module has
      an op of another MLIR dialect, such as mhlo.erf. In this case, the module is returned as text.
    """
    try:
        module = generate(stage="stablehlo_serialized")
    except ValueError as error:
        if _NOT_SERIALISED not in str(error):
            raise
        module = generate(stage="stablehlo")
    return module.encode() if isinstance(module, str) else module


# An XlaCallModule op can contain code for several platforms. On a CPU, TensorFlow's XLA bridge
# translates the code for the platform of this name.
_TRANSLATED_ON = b"CPU"
# Part of each fingerprint. Increase it when the translation changes, so that executables from
# earlier translations are not found in the cache.
_TRANSLATION_VERSION = 2


class StableHloTranslator:
    """Translates the XLA clusters of a graph to StableHLO modules with TensorFlow's XLA bridge.

    The variables that a cluster uses become arguments of its module, and not constants. The bridge
    needs only their shapes, so they are created without memory for values, once for all clusters.

    Args:
      graph: A GraphDef without TPU ops, with its function library.
      line_of: Takes a node as "node@function"; returns the line of user code that created the
        node, as "file:number", or None if it is unknown.
      platform: The platform for which XlaCallModule ops are translated: "CPU", "TPU" or "CUDA".
        The translation of all other ops is the same for all.
    """

    def __init__(
        self,
        graph: GraphDef,
        line_of: xla_errors.LineOf = xla_errors.unknown_line,
        *,
        platform: str = "CPU",
    ) -> None:
        self._line_of = line_of
        self._refusals = _find_refusals(graph, platform)
        self._functions = FunctionLibrary(_retarget_modules(graph, platform))
        self._variables: dict[VariableSpec, Any] = {}

    def translate(self, cluster: XlaCluster) -> bytes:
        """Translate a cluster to a StableHLO module.

        Returns:
          The module in StableHLO's portable form, or as text if TensorFlow cannot write this form.

        Raises:
          UnsupportedOnTpu: TensorFlow's XLA bridge cannot translate an op, which the message names.
        """
        for name in self._functions.reachable(cluster.function):
            if name in self._refusals:
                raise UnsupportedOnTpu(self._refusals[name])
        body = self._functions.body(cluster.function)
        placeholders = {node_name(name) for name in body.inputs}
        graph_def = self._functions.new_graph_def()
        graph_def.node.extend(node for node in body.nodes if node.name not in placeholders)

        def computation(*arguments: Any) -> Any:
            return self._import_body(graph_def, body, cluster, iter(arguments))

        specs = [
            tf.TensorSpec(argument.shape, argument.dtype)
            for argument in cluster.arguments
            if argument.variable is None
        ]
        # The XLA bridge translates for the device of the scope, which may otherwise be a GPU.
        with eager_context.eager_mode(), tf.device("/device:CPU:0"):
            # Create the variables before the tf.function, because a tf.function that creates
            # variables is traced twice.
            for argument in cluster.arguments:
                if argument.variable is not None:
                    self._create_variable(argument.variable)
            try:
                function = tf.function(computation, jit_compile=True, autograph=False)
                with register_functions(graph_def):
                    generate = function.experimental_get_compiler_ir(*specs)
                    module = generate_stablehlo(generate)
            except (ValueError, TypeError, tf.errors.OpError) as error:
                text = xla_errors.describe_error(error, cluster.function, self._line_of)
                raise UnsupportedOnTpu(text) from error
        return module

    def fingerprint(self, cluster: XlaCluster) -> str:
        """Return a hash that identifies the StableHLO module of a cluster, as a key for caches.

        The hash is computed without translating the cluster. It is the same for each export of the
        same model.
        """
        version = f"{_TRANSLATION_VERSION} {tf.__version__} {cluster.arguments}"
        digest = hashlib.sha256(version.encode())
        digest.update(self._functions.serialize_normalized(cluster.function))
        return digest.hexdigest()

    def _import_body(
        self, graph_def: Any, body: FunctionBody, cluster: XlaCluster, tensors: Iterator[Any]
    ) -> list[Any]:
        graph = tf.compat.v1.get_default_graph()
        input_map = {
            name: next(tensors)
            if argument.variable is None
            else graph.capture(self._variables[argument.variable].handle)
            for name, argument in zip(body.inputs, cluster.arguments, strict=True)
        }
        imported = tf.import_graph_def(
            graph_def,
            input_map=input_map,
            return_elements=[*body.outputs, *body.control_outputs],
            name="",
        )
        count = len(body.outputs)
        with tf.control_dependencies(imported[count:]):
            return [tf.identity(output) for output in imported[:count]]

    def _create_variable(self, spec: VariableSpec) -> None:
        if spec not in self._variables:
            assert spec.shape is not None
            shape = tuple(size or 0 for size in spec.shape)
            value = make_uninitialized_tensor(shape, spec.dtype)
            self._variables[spec] = tf.Variable(value)


def _find_refusals(graph: Any, platform: str) -> dict[str, str]:
    """Find the functions that contain an XlaCallModule which does not run on a platform."""
    refusals = {}
    for function, node in _call_modules(graph):
        module = describe_module(node)
        if not module.runs_on(platform):
            refusals[function] = module.why_not_on(platform)
    return refusals


def _retarget_modules(graph: Any, platform: str) -> Any:
    """Let TensorFlow's XLA bridge translate the XlaCallModule ops of a graph for a platform."""
    target = platform.encode()
    if target == _TRANSLATED_ON or not any(_call_modules(graph)):
        return graph
    retargeted = type(graph)()
    retargeted.CopyFrom(graph)
    exchanged = {target: _TRANSLATED_ON, _TRANSLATED_ON: target}
    for _, node in _call_modules(retargeted):
        platforms = attribute_value(node, "platforms").list.s
        platforms[:] = [exchanged.get(name, name) for name in platforms]
    return retargeted


def _call_modules(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name of the function, node) for each XlaCallModule in the functions of a graph."""
    for function in graph.library.function:
        for node in function.node_def:
            if node.op == CALL_MODULE:
                yield function.signature.name, node
