"""Looks up in TensorFlow's kernel registry which ops XLA can compile."""

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpuserve.tensorflow_internals import eager_context, kernels

_XLA_DEVICE = "XLA_CPU_JIT"


def has_xla_kernel(node: Any) -> bool:
    """Return whether XLA has a kernel for the op of a NodeDef with the node's types.

    The result is False for a node whose op is the name of a function that the node calls.
    """
    return any(
        all(_satisfies(node, constraint) for constraint in kernel.constraint)
        for kernel in _xla_kernels().get(node.op, ())
    )


def _satisfies(node: Any, constraint: Any) -> bool:
    """Return whether the node's dtype attribute has a type that a kernel's constraint allows."""
    allowed = constraint.allowed_values.list.type
    if constraint.name not in node.attr or not allowed:
        return True
    attribute = node.attr[constraint.name]
    types = attribute.list.type if attribute.WhichOneof("value") == "list" else [attribute.type]
    return set(types) <= set(allowed)


@functools.cache
def _xla_kernels() -> Mapping[str, list[Any]]:
    """Return op type → the KernelDefs of the XLA kernels for that op."""
    # Compile a small function before reading the registry, because TensorFlow registers XLA's
    # kernels at the first compilation. Call it eagerly: inside of a graph, the call would only add
    # an op and compile nothing.
    with eager_context.eager_mode():
        tf.function(lambda: tf.zeros([]), jit_compile=True)()
    by_op = defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == _XLA_DEVICE:
            by_op[kernel.op].append(kernel)
    return by_op
