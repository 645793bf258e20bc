"""Variables that hold values of a loop's last step, so that the host can read them after the loop.

No hook and no summary can read a tensor inside the replicated computation. So the step writes the
tensor into a local variable, which no checkpoint contains.
"""

from typing import Any

import tensorflow as tf


class StepOutputVariables:
    """Variables that keep tensors of a loop's last step, for hooks and summaries on the host.

    The host cannot fetch a tensor of a step that runs inside the loop. So each step assigns the
    tensors to variables, which the host reads after the loop. The variables are in the collection
    LOCAL_VARIABLES, and so not in checkpoints.

    Attributes:
      writes: the ops with which each step writes its values into the variables.
    """

    def __init__(self, replicas: int) -> None:
        """Create an empty set of variables.

        Args:
          replicas: number of replicas that make the step.
        """
        self._replicas = replicas
        self.writes: list[Any] = []

    def store(self, tensor: Any, name: str) -> Any:
        """Copy a tensor of the step into a new variable; called inside the step.

        A floating-point scalar is stored as the mean over the replicas; of any other tensor, the
        first replica's value is stored.

        Args:
          tensor: a tensor of static shape.
          name: name of the variable, which is made unique.

        Returns:
          The variable, to be passed to `read_after`.
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
    """Build a host tensor with the stored value, read after an op has run.

    Args:
      variable: the result of `StepOutputVariables.store`.
      done: the op or tensor that must run before the read.
      name: name of the tensor's op.
    """
    with tf.control_dependencies([done]):
        return tf.identity(variable.read_value(), name=name)
