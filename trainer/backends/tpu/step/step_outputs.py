"""Values of the last step of a loop that the host can read once the loop is over.

A tensor of a step lives inside of the replicated computation, where no hook and no summary can
reach it. So the step writes it into a local variable, which is in no checkpoint.
"""

from typing import Any

import tensorflow as tf


class StepOutputVariables:
    """The values that a step keeps."""

    def __init__(self, replicas: int) -> None:
        """Nothing is kept yet."""
        self._replicas = replicas
        self.writes: list[Any] = []

    def keep(self, tensor: Any, name: str) -> Any:
        """Keeps a tensor of the step; returns what `read` knows it by.

        A scalar of a floating type is kept as its mean over the replicas; of others, what the
        first replica has.

        Args:
          tensor: of static shape.
          name: of the variable; made unique.
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
    def can_keep(tensor: Any) -> bool:
        """Whether a tensor has a static shape, and a type that a variable takes."""
        return tensor.shape.is_fully_defined() and tensor.dtype not in (tf.string, tf.resource)


def read_after(variable: Any, after: Any, name: str) -> Any:
    """The tensor outside of the loop that has the kept value, once an op has run."""
    with tf.control_dependencies([after]):
        return tf.identity(variable.read_value(), name=name)
