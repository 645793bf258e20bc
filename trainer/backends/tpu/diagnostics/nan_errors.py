"""What the check after a loop says of a variable that is no number any more, made readable."""

import re

import tensorflow as tf

MESSAGE = "Gradient for {name} is NaN or infinite"
_SAID = re.compile(MESSAGE.format(name=r"(?P<name>\S+)"))


class NanVariableError(tf.compat.v1.train.NanLossDuringTrainingError):
    """Training has made a variable NaN or infinite."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return self._text


def explain_nan_error(error: BaseException) -> NanVariableError | None:
    """What to raise from an error of the check; None for another error."""
    said = _SAID.search(str(error)) if isinstance(error, tf.errors.InvalidArgumentError) else None
    if said is None:
        return None
    return NanVariableError(
        f"{said[0]}: after a training loop the variable is no number any more. Lower the "
        f"learning rate, clip the gradients, or look for a log or a division of zero; training "
        f"can go on from the last checkpoint."
    )
