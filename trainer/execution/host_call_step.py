"""Adds the ops of a host_call to a training step, so that they run in each step of a loop."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.graph import reachability
from trainer.tensorflow_internals import get_private_attribute


def join_host_call(train_op: Any, tensors: Any, fetches: Any) -> Any:
    """Build the op that runs a training step and the ops of a host_call.

    A tensor of the host_call that reads a variable gets the value that the variable had before the
    step. The same is true on a TPU, where model_fn reads the variable before the train_op writes to
    the variable.

    Args:
      train_op: the op or tensor that makes one step.
      tensors: the tensors that the host_call's function takes, a nested structure.
      fetches: the return value of the host_call's function: a nested structure of tensors, ops and
        Nones.
    """
    parts = [part for part in tf.nest.flatten(fetches) if part is not None]
    step = reachability.reachable_ops([getattr(train_op, "op", train_op)])
    _order_reads_before_writes(_operations(tf.nest.flatten(tensors)), step)
    return tf.group(train_op, *parts)


def _order_reads_before_writes(tensors: Iterable[Any], step: Mapping[str, Any]) -> None:
    """Let a host_call read the values that variables have before the step writes them.

    Each write of a variable gets a control input from the host_call's reads of the variable. Reads
    that already depend on the write, for example by a control dependency, are left out.

    Args:
      tensors: the operations that produce the tensors of the host_call.
      step: the operations of the step, by name.
    """
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
