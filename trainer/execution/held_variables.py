"""Keeps the values of variables intact while XLA runs a step for the first time.

If XLA fails, training continues from these values without XLA.
"""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# Matches the ops that update a variable sparsely. If such an op uses a variable, each read of the
# variable returns a copy.
_COPIES_VALUE = re.compile(r"Resource(Sparse|Scatter)\w+")


class HeldVariables:
    """Prevents XLA from overwriting the values of variables in memory, without copying them.

    XLA writes the new value of a variable into the memory of the old value, unless there is another
    reference to that memory.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
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
        """Return whether the values of all variables that a step uses can be held.

        The value of a variable cannot be held if an op of the step updates the variable sparsely.
        """
        return not any(_COPIES_VALUE.fullmatch(operation.type) for operation in operations)

    @property
    def are_held(self) -> bool:
        """Whether values are held: from `hold` until `release` or `forget`."""
        return self._held is not None

    def hold(self, session: Any) -> None:
        """Keep XLA from overwriting the values that the variables have now, until `release`."""
        # Keep only the raw handles, which are strings, and not the TensorHandle objects: when such
        # an object is freed, TensorFlow adds ops to the graph in order to delete its value.
        self._held = [handle.get_raw_handle() for handle in session.run(self._holds)]

    def forget(self) -> None:
        """Record that no values are held, because a new session has replaced the old one."""
        self._held = None

    def release(self, session: Any) -> None:
        """Free the held values; do nothing if none are held."""
        held, self._held = self._held, None
        if held is not None:
            session.run(self._releases, dict(zip(self._keys, held, strict=True)))
