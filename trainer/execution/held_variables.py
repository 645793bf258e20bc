"""Keeps the values of variables in memory while XLA runs a step for the first time."""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# The ops after which a variable gives each reader a copy of its value.
_COPIES_VALUE = re.compile(r"Resource(Sparse|Scatter)\w+")


class HeldVariables:
    """Lets a session hold the values of variables, without copies.

    XLA writes the new value of a variable into the memory of the old one, unless something else
    refers to that memory. If the computation then fails, TensorFlow frees the memory twice, and the
    next use of the variable ends the process. A value that is held stays as it is.
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
        # Take the raw handles: TensorFlow would add ops to the graph to delete the others.
        self._held = [handle.get_raw_handle() for handle in session.run(self._holds)]

    def forget(self) -> None:
        """Record that no values are held, because the session is a new one."""
        self._held = None

    def release(self, session: Any) -> None:
        """Free the values; do nothing if none are held."""
        held, self._held = self._held, None
        if held is not None:
            session.run(self._releases, dict(zip(self._keys, held, strict=True)))
