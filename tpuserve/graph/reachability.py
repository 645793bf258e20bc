"""Finds the operations of a tf.Graph that a session runs to compute some targets."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpuserve import tensorflow_internals

CREATED_IN_EACH_RUN = ("StackV2", "TensorArrayV3")
"""Types of the ops that create a new resource in each run of a session."""


def reachable_ops(targets: Iterable[Any]) -> dict[str, Any]:
    """Return the operations that a session runs for some targets.

    Operations that hold persistent state, such as variables and tables, are not returned. The
    search does not continue to their inputs.

    Returns:
      Operation name → operation. The targets are included, unless they hold persistent state.
    """
    pending = list(targets)
    reachable: dict[str, Any] = {}
    while pending:
        operation = pending.pop()
        if operation.name in reachable or is_persistent(operation):
            continue
        reachable[operation.name] = operation
        pending.extend(tensor.op for tensor in operation.inputs)
        pending.extend(operation.control_inputs)
    return reachable


def is_persistent(operation: Any) -> bool:
    """Return whether an operation stands for state that outlives a single run of a session.

    This is true for variables, tables, queues and iterators.
    """
    # A placeholder is treated like state: its value is the same during a whole run, and comes from
    # outside of the graph.
    if operation.type in ("Placeholder", "PlaceholderWithDefault"):
        return True
    # An op that has no inputs and returns a reference (a dtype such as float32_ref) is a variable
    # of TensorFlow 1.
    if not operation.inputs and any(
        tensorflow_internals.is_ref_dtype(tensor.dtype) for tensor in operation.outputs
    ):
        return True
    # An operation creates a resource if it returns a resource handle and takes none. If it also
    # takes one, it only forwards the handle.
    creates_resource = any(tensor.dtype == tf.resource for tensor in operation.outputs) and not any(
        tensor.dtype == tf.resource for tensor in operation.inputs
    )
    return creates_resource and operation.type not in CREATED_IN_EACH_RUN
