"""Reachability in a tf.Graph: finds the operations that one run of a session executes."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpuserve import tensorflow_internals

# Ops that create a new resource in each run, for the control flow of TensorFlow 1 and its
# gradients.
_CREATED_IN_EACH_RUN = ("StackV2", "TensorArrayV3")


def reachable_ops(targets: Iterable[Any]) -> dict[str, Any]:
    """Return the operations that the targets need, except those that hold persistent state.

    Args:
      targets: operations of a tf.Graph.

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
    """Return whether an operation stands for state that exists before and after a session's run.

    Such state is a variable, table, queue or iterator, or the value of a placeholder.
    """
    # A placeholder counts as state, because it has one value during a whole run, fed or not.
    if operation.type in ("Placeholder", "PlaceholderWithDefault"):
        return True
    # An op without inputs that returns a reference is a variable of TensorFlow 1.
    if not operation.inputs and any(
        tensorflow_internals.is_ref_dtype(tensor.dtype) for tensor in operation.outputs
    ):
        return True
    # An operation with a resource as input and output forwards the resource. Only an operation
    # without a resource as input creates a resource, and stands for its state.
    creates_resource = any(tensor.dtype == tf.resource for tensor in operation.outputs) and not any(
        tensor.dtype == tf.resource for tensor in operation.inputs
    )
    return creates_resource and operation.type not in _CREATED_IN_EACH_RUN
