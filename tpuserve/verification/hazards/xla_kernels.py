"""What XLA can compile, asked of TensorFlow's own registry of kernels."""

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels

_DEVICE = "XLA_CPU_JIT"


def has_xla_kernel(node: Any) -> bool:
    """Whether XLA has a form for a node's op with the node's types.

    Args:
      node: a NodeDef; a call of a function by its name counts as an op, and has none.
    """
    return any(
        all(_allows(constraint, node) for constraint in each.constraint)
        for each in _registered().get(node.op, ())
    )


def _allows(constraint: Any, node: Any) -> bool:
    allowed = constraint.allowed_values.list.type
    if constraint.name not in node.attr or not allowed:
        return True
    attribute = node.attr[constraint.name]
    types = attribute.list.type if attribute.WhichOneof("value") == "list" else [attribute.type]
    return set(types) <= set(allowed)


@functools.cache
def _registered() -> Mapping[str, list[Any]]:
    # They are registered as soon as something is compiled, and not before.
    tf.function(lambda: tf.zeros([]), jit_compile=True)()
    found = defaultdict(list)
    for each in kernels.get_all_registered_kernels().kernel:
        if each.device_type == _DEVICE:
            found[each.op].append(each)
    return found
