"""Variables that hold tensors of a loop's last step, so that the host can read them.

Hooks and summaries on the host cannot read a tensor inside the TPU computation. So the step writes
the tensor into a local variable, which no checkpoint contains.
"""

from typing import Any

import tensorflow as tf


class StepOutputVariables:
    """Variables into which each step on a TPU copies tensors, for hooks and summaries on the host.

    The host cannot fetch a tensor of a step, because the step runs in a loop in the TPU
    computation.
    """

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self.writes: list[Any] = []

    def store(self, tensor: Any, name: str) -> Any:
        """Let each step copy a tensor into a new variable; called inside the step.

        For a floating-point scalar, the variable holds the mean over the replicas.
        """
        if tensor.dtype.is_floating and tensor.shape.rank == 0 and self._replicas > 1:
            tensor = tf.compat.v1.tpu.cross_replica_sum(tensor / self._replicas)
        with tf.init_scope():
            variable = tf.compat.v1.Variable(
                tf.zeros(tensor.shape, tensor.dtype),
                trainable=False,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                use_resource=True,
                name=f"last_step/{name}",
            )
        self.writes.append(variable.assign(tensor, read_value=False))
        return variable

    @staticmethod
    def can_store(tensor: Any) -> bool:
        """Return whether a tensor has a static shape and a dtype that a variable can have."""
        return tensor.shape.is_fully_defined() and tensor.dtype not in (tf.string, tf.resource)


def read_after(variable: Any, done: Any, name: str) -> Any:
    """Build a tensor that reads a variable of `StepOutputVariables` after the loop."""
    with tf.control_dependencies([done]):
        return tf.identity(variable.read_value(), name=name)
