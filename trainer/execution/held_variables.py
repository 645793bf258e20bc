"""Keeps the values of variables in memory while XLA runs a step for the first time."""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# If one of these ops uses a variable, each read of the variable returns a copy. A copy does not
# protect the memory of the value, so the value cannot be held.
_COPIES_VALUE = re.compile(r"Resource(Sparse|Scatter)\w+")


class HeldVariables:
    """Keeps the values of variables from being overwritten in memory, without copying them.

    XLA writes the new value of a variable into the memory of the old value, unless something else
    refers to that memory. If the computation then fails, TensorFlow frees the memory twice, and the
    next use of the variable ends the process. A held value is a further reference to the memory, so
    XLA writes the new value to another place.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        """Build the ops in the default graph.

        Args:
          variables: the handles of the variables, outputs of VarHandleOps.
        """
        self._keys: list[Any] = []
        self._holds, self._releases = [], []
        for variable in variables:
            value = tf.raw_ops.ReadVariableOp(
                resource=variable, dtype=variable.op.get_attr("dtype")
            )
            key = tf.compat.v1.placeholder(tf.string, [])
            self._keys.append(key)
            self._holds.append(tf.raw_ops.GetSessionHandle(value=value))
            self._releases.append(tf.raw_ops.DeleteSessionTensor(handle=key))
        self._held: Any = None

    @staticmethod
    def can_hold(operations: Sequence[Any]) -> bool:
        """Return whether the values of the variables that a step uses can be held.

        Args:
          operations: the operations of the step.
        """
        return not any(_COPIES_VALUE.fullmatch(operation.type) for operation in operations)

    @property
    def are_held(self) -> bool:
        """Whether the values are held now."""
        return self._held is not None

    def hold(self, session: Any) -> None:
        """Hold the values that the variables have now."""
        # Keep only the raw handles, which are strings. When a TensorHandle object is freed,
        # TensorFlow adds ops to the graph to delete its value.
        self._held = [handle.get_raw_handle() for handle in session.run(self._holds)]

    def forget(self) -> None:
        """Record that no values are held, because the session is a new one."""
        self._held = None

    def release(self, session: Any) -> None:
        """Free the values; do nothing if none are held."""
        held, self._held = self._held, None
        if held is not None:
            session.run(self._releases, dict(zip(self._keys, held, strict=True)))
