"""The error for variables that become NaN or infinite in training."""

import re

import tensorflow as tf

from trainer.hooks.training_hooks import NanError

MESSAGE = "Gradient for {name} is NaN or infinite"
"""The message of the op that checks a variable for NaN after each training loop on a TPU."""

_MESSAGE_PATTERN = re.compile(MESSAGE.format(name=r"(?P<name>\S+)"))


def nan_variable_error(name: str) -> NanError:
    """Return the error for a variable that became NaN or infinite in training."""
    return NanError(
        f"{MESSAGE.format(name=name)}: variable {name!r} became NaN or infinite in a training loop"
    )


def explain_nan_error(error: BaseException) -> NanError | None:
    """Translate the error of an op that checks a variable for NaN.

    Returns:
      None if the error does not come from such an op.
    """
    is_op_error = isinstance(error, tf.errors.InvalidArgumentError)
    match = _MESSAGE_PATTERN.search(str(error)) if is_op_error else None
    if match is None:
        return None
    return nan_variable_error(match["name"])
