"""The error for variables that become NaN or infinite in training."""

import re

import tensorflow as tf

MESSAGE = "Gradient for {name} is NaN or infinite"
"""The message of the op that checks a variable for NaN after each training loop on a TPU.

`explain_nan_error` recognises the op's error by this message. `name` is the variable's name.
"""

_MESSAGE_PATTERN = re.compile(MESSAGE.format(name=r"(?P<name>\S+)"))


class NanVariableError(tf.compat.v1.train.NanLossDuringTrainingError):
    """A variable became NaN or infinite during training."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return self._text

    @classmethod
    def for_variable(cls, name: str) -> "NanVariableError":
        """Return the error for the variable with this name."""
        return cls(
            f"{MESSAGE.format(name=name)}: variable {name!r} became NaN or infinite in a training "
            f"loop. Lower the learning rate, clip the gradients, or look for a log or a division "
            f"of zero; training can continue from the last checkpoint."
        )


def explain_nan_error(error: BaseException) -> NanVariableError | None:
    """Translate the error of an op that checks a variable for NaN.

    Returns:
      A NanVariableError; None if the error does not come from such an op.
    """
    is_op_error = isinstance(error, tf.errors.InvalidArgumentError)
    match = _MESSAGE_PATTERN.search(str(error)) if is_op_error else None
    if match is None:
        return None
    return NanVariableError.for_variable(match["name"])
