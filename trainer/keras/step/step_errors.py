"""What to say where Keras cannot make a step of a batch."""

import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, TpuserveError
from trainer.tensorflow_internals import StagingError

STEP_ERRORS = (ValueError, TypeError, LookupError, AttributeError, StagingError, tf.errors.OpError)
"""What Keras and TensorFlow raise of a batch that does not fit."""

_COLOUR = re.compile(r"\x1b\[\d*m")


def explain_step_error(error: BaseException, where: str, parts: Mapping[str, Any]) -> BaseException:
    """The error to raise for one that came while a step was traced.

    Args:
      error: as it came.
      where: names the model.
      parts: what the step was given, as features, labels and weights.
    """
    origin = _original_error(error)
    if isinstance(origin, TpuserveError):
        return origin
    has = ", ".join(f"{name} {_format_shapes(part)}" for name, part in parts.items())
    found = InvalidSetting(
        f"{where} cannot take the batch: {_first_sentence(origin)} It has {has}. Have input_fn "
        f"give (features, labels), or (features, labels, sample_weight), as model.fit takes them."
    )
    found.__cause__ = origin
    return found


def _original_error(error: BaseException) -> BaseException:
    # AutoGraph puts an error of its own, with a traceback for a text, in the place of each.
    while hasattr(error.__context__, "ag_error_metadata"):
        assert error.__context__ is not None
        error = error.__context__
    return error


def _first_sentence(error: BaseException) -> str:
    lines = [each.strip() for each in _COLOUR.sub("", str(error)).splitlines() if each.strip()]
    # Keras names the layer first, and then what is wrong.
    told = [each for each in lines if not each.startswith("Exception encountered")]
    first = (told or lines or [type(error).__name__])[0]
    return first if first.endswith((".", "!", "?")) else f"{first}."


def _format_shapes(part: Any) -> str:
    if part is None:
        return "none"
    if isinstance(part, dict):
        return (
            "{" + ", ".join(f"{name}: {_format_shapes(each)}" for name, each in part.items()) + "}"
        )
    if isinstance(part, (list, tuple)):
        return "[" + ", ".join(_format_shapes(each) for each in part) + "]"
    return f"{part.dtype.name}{part.shape}"
