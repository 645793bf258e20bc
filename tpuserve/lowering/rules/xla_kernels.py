"""Finds the ops that XLA can compile, in TensorFlow's registry of kernels."""

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpuserve.lowering.tpu_kernels import has_only_tpu_kernel
from tpuserve.tensorflow_internals import eager_context, kernels

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library

_XLA_DEVICE = "XLA_CPU_JIT"
_COMPILED_PREFIXES = ("Xla", "_")
_FORWARDING = ("Identity", "IdentityN", "NoOp", "StopGradient", "PreventGradient")


def is_compilable(node: Any, library: "Library") -> bool:
    """Return whether XLA can compile a node's op; functions that the node calls are not checked."""
    return (
        node.op in library
        or node.op in _FORWARDING
        or node.op.startswith(_COMPILED_PREFIXES)
        or has_xla_kernel(node)
    )


def has_xla_kernel(node: Any) -> bool:
    """Return whether XLA has a kernel for the op of a NodeDef and the dtypes in its attributes.

    A kernel that only TPUs have counts too. For a node whose op type is the name of a function,
    return False.
    """
    return has_only_tpu_kernel(node.op) or any(
        all(_satisfies(node, constraint) for constraint in kernel.constraint)
        for kernel in _xla_kernels().get(node.op, ())
    )


def _satisfies(node: Any, constraint: Any) -> bool:
    allowed = constraint.allowed_values.list.type
    if constraint.name not in node.attr or not allowed:
        return True
    attribute = node.attr[constraint.name]
    types = attribute.list.type if attribute.WhichOneof("value") == "list" else [attribute.type]
    return set(types) <= set(allowed)


@functools.cache
def _xla_kernels() -> Mapping[str, list[Any]]:
    """Return op type → the KernelDefs of the XLA kernels for that op."""
    # TensorFlow registers XLA's kernels when it first compiles a function with XLA. Compile a small
    # function before reading the registry.
    with eager_context.eager_mode():
        tf.function(lambda: tf.zeros([]), jit_compile=True)()
    by_op = defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == _XLA_DEVICE:
            by_op[kernel.op].append(kernel)
    return by_op
