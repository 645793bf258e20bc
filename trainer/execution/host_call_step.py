"""Adds the ops of a host_call to a training step, so that they run in each step of a loop."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.graph import reachability
from trainer.tensorflow_internals import get_private_attribute


def join_host_call(train_op: Any, tensors: Any, fetches: Any) -> Any:
    """Build the op that runs a training step and the ops of a host_call.

    A tensor of the host_call that reads a variable gets the value that the variable had before the
    step.
    """
    parts = [part for part in tf.nest.flatten(fetches) if part is not None]
    step = reachability.reachable_ops([getattr(train_op, "op", train_op)])
    _order_reads_before_writes(_operations(tf.nest.flatten(tensors)), step)
    return tf.group(train_op, *parts)


def _order_reads_before_writes(tensors: Iterable[Any], step: Mapping[str, Any]) -> None:
    """Let a host_call read the values that variables have before the step writes them."""
    writes: dict[str, list[Any]] = {}
    for operation in step.values():
        if operation.type.startswith("Assign") and operation.type.endswith("VariableOp"):
            writes.setdefault(operation.inputs[0].name, []).append(operation)
    for read in reachability.reachable_ops(tensors).values():
        if read.type != "ReadVariableOp" or read.inputs[0].name not in writes:
            continue
        before = reachability.reachable_ops([read])
        for write in writes[read.inputs[0].name]:
            if write.name not in before:
                get_private_attribute(write, "_add_control_input")(read)


def _operations(tensors: Iterable[Any]) -> list[Any]:
    return [tensor.op for tensor in tensors if hasattr(tensor, "op")]
