"""What one run of a live graph computes, and what is there before and after it."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpuserve import tensorflow_internals

# The resources of version 1's control flow and its gradients.
_MADE_IN_EACH_RUN = ("StackV2", "TensorArrayV3")


def reachable_ops(targets: Iterable[Any]) -> dict[str, Any]:
    """All operations that the targets need, by name, but for those that outlive a run."""
    pending, found = list(targets), {}
    while pending:
        operation = pending.pop()
        if operation.name in found or is_persistent(operation):
            continue
        found[operation.name] = operation
        pending.extend(each.op for each in operation.inputs)
        pending.extend(operation.control_inputs)
    return found


def is_persistent(operation: Any) -> bool:
    """Whether an operation stands for something that is there before and after a run."""
    # Fed or not, a placeholder has one value in the whole run.
    if operation.type in ("Placeholder", "PlaceholderWithDefault"):
        return True
    # A variable of version 1, by its reference.
    if not operation.inputs and any(
        tensorflow_internals.is_ref_dtype(each.dtype) for each in operation.outputs
    ):
        return True
    # A variable, table, queue or iterator; an op that takes a resource only hands it on.
    makes_resource = any(each.dtype == tf.resource for each in operation.outputs) and not any(
        each.dtype == tf.resource for each in operation.inputs
    )
    return makes_resource and operation.type not in _MADE_IN_EACH_RUN
