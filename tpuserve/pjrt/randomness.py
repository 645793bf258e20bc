"""Replaces the stateful random ops of a training step by stateless ones, which XLA can compile.

A stateful op, such as RandomUniform, keeps its state in the kernel, which is not possible with XLA.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tpuserve.graph.graph_walk import called_functions
from tpuserve.graph.references import data_inputs, replace_data_inputs
from tpuserve.lowering.rules.node_rewriting import RewriteScope
from tpuserve.saved_model import dtypes

KEY = "tpuserve_key"
"""The name of the tensor, uint64 [1], with the key: the node or the function argument."""

RaiseUnsupported = Callable[[Any, str], None]
"""Takes a node and the name of its function ("" for the step) and raises UnsupportedOnTpu."""

# Type of a stateful random op → (type of the stateless op that replaces it, name of the attribute
# of the stateful op that holds the dtype of its output).
_STATELESS = {
    "RandomUniform": ("StatelessRandomUniformV2", "dtype"),
    "RandomStandardNormal": ("StatelessRandomNormalV2", "dtype"),
    "TruncatedNormal": ("StatelessTruncatedNormalV2", "dtype"),
    "RandomUniformInt": ("StatelessRandomUniformIntV2", "Tout"),
}
# Types of the random ops that cause an error. XLA could compile them, but they would draw the same
# numbers in each step, and there is no stateless op that XLA can compile in their place.
_WITHOUT_KEY = ("Multinomial", "ParameterizedTruncatedNormal", "RandomShuffle")
_PHILOX = 1
# The counter of a random op is computed from the seeds of the op, and the key of a function call
# from the number of the call.
_STEP_OF_KEYS = 0x9E3779B97F4A7C15
# The key of the random ops in a called function is computed from the caller's key, which is
# multiplied by this factor, modulo 2**64.
_FACTOR = 6364136223846793005
_LOOPS = ("While", "StatelessWhile")


def make_stateless(graph: Any, refuse: RaiseUnsupported) -> bool:
    """Replace, in place, the stateful random ops of a graph and of the functions that it calls.

    The new ops use the tensor named `KEY`, which must be an input when the graph is imported.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    with_key = _functions_with_random_ops(graph, functions)
    numbers = iter(range(1, 2**31))
    for name in sorted(with_key):
        function = functions[name]
        _rewrite_nodes(function.node_def, name, with_key, numbers, refuse)
        function.signature.input_arg.add(name=KEY, type=dtypes.UINT64)
    for name in _loop_bodies(graph, functions) & with_key:
        _return_next_key(functions[name])
    return _rewrite_nodes(graph.node, "", with_key, numbers, refuse)


def _functions_with_random_ops(graph: Any, functions: Any) -> set[str]:
    """Return the names of the functions that need the key of the random ops as an argument."""
    bodies = [(function.node_def, {name}) for name, function in functions.items()]
    bodies.append((graph.node, set()))
    with_key: set[str] = set()
    while True:
        before = len(with_key)
        for nodes, name in bodies:
            for node in nodes:
                called = set(called_functions(node)) & functions.keys()
                if called & with_key:
                    with_key |= name | called
                elif node.op in _STATELESS or node.op in _WITHOUT_KEY:
                    with_key |= name
        if len(with_key) == before:
            return with_key


def _loop_bodies(graph: Any, functions: Any) -> set[str]:
    all_nodes = (graph.node, *(function.node_def for function in functions.values()))
    return {
        node.attr["body"].func.name for nodes in all_nodes for node in nodes if node.op in _LOOPS
    }


def _rewrite_nodes(
    nodes: Any,
    function: str,
    with_key: set[str],
    numbers: Iterator[int],
    refuse: RaiseUnsupported,
) -> bool:
    scope = RewriteScope(nodes, in_function=bool(function))
    has_any = False
    for node in list(nodes):
        if set(called_functions(node)) & with_key:
            _pass_key(node, next(numbers), scope)
        elif node.op in _STATELESS:
            _replace_random_op(node, next(numbers), scope)
        elif node.op in _WITHOUT_KEY:
            refuse(node, function)
        else:
            continue
        has_any = True
    return has_any


def _replace_random_op(node: Any, number: int, scope: RewriteScope) -> None:
    op, type_attribute = _STATELESS[node.op]
    # The counter has two 64-bit words. The op increases the first word with each block of numbers
    # that it draws.
    seeds = (node.attr["seed"].i << 32) ^ node.attr["seed2"].i
    word = (seeds * _STEP_OF_KEYS + number) % 2**64
    counter = _add_constant(node, "counter", [0, word], dtypes.UINT64, scope)
    algorithm = _add_constant(node, "algorithm", _PHILOX, dtypes.INT32, scope)
    shape, *bounds = data_inputs(node)
    replace_data_inputs(node, [shape, KEY, counter, algorithm, *bounds])
    shape_type = node.attr["T"].type
    dtype = node.attr[type_attribute].type
    node.op = op
    node.attr.clear()
    node.attr["dtype"].type = dtype
    node.attr["Tshape"].type = shape_type


def _pass_key(node: Any, number: int, scope: RewriteScope) -> None:
    """Let a node pass a key to the functions that it calls, as their last argument."""
    key = _add_key(node.name, number, scope)
    replace_data_inputs(node, [*data_inputs(node), key])
    attribute = "T" if node.op in _LOOPS else "Tin"
    if attribute in node.attr:
        node.attr[attribute].list.type.append(dtypes.UINT64)
    if node.op in _LOOPS and node.attr["output_shapes"].list.shape:
        node.attr["output_shapes"].list.shape.add().dim.add(size=1)


def _return_next_key(body: Any) -> None:
    """Let the body of a loop return the key for the next iteration, as its last result."""
    scope = RewriteScope(body.node_def, in_function=True)
    key = _add_key(KEY, 1, scope)
    body.signature.output_arg.add(name=f"{KEY}_next", type=dtypes.UINT64)
    body.ret[f"{KEY}_next"] = key


def _add_key(name: str, number: int, scope: RewriteScope) -> str:
    """Add nodes that compute a new key from a number and the key of a graph or function."""
    product = scope.add_node(f"{name}/{KEY}_product")
    product.op = "Mul"
    product.attr["T"].type = dtypes.UINT64
    product.input.extend([KEY, _add_constant(product, "factor", [_FACTOR], dtypes.UINT64, scope)])
    addition = scope.add_node(f"{name}/{KEY}")
    addition.op = "AddV2"
    addition.attr["T"].type = dtypes.UINT64
    constant = _add_constant(
        addition, "number", [number * _STEP_OF_KEYS % 2**64], dtypes.UINT64, scope
    )
    addition.input.extend([scope.reference(product, "z"), constant])
    return scope.reference(addition, "z")


def _add_constant(node: Any, name: str, value: Any, dtype: int, scope: RewriteScope) -> str:
    import numpy as np
    import tensorflow as tf

    from tpuserve.tensorflow_internals import tensor_util

    constant = scope.add_node(f"{node.name}/{KEY}_{name}")
    constant.op = "Const"
    constant.attr["dtype"].type = dtype
    array = np.array(value, tf.as_dtype(dtype).as_numpy_dtype)
    constant.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(array))
    return scope.reference(constant, "output")
