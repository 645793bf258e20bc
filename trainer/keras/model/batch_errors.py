"""Builds the error that reports a batch that a Keras model cannot process."""

import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, TpuserveError
from trainer.tensorflow_internals import StagingError

BATCH_ERRORS = (ValueError, TypeError, LookupError, AttributeError, StagingError, tf.errors.OpError)
"""The errors that Keras and TensorFlow raise for a batch that does not fit the model."""

_COLOUR_CODE = re.compile(r"\x1b\[\d*m")


def explain_batch_error(
    error: BaseException, label: str, parts: Mapping[str, Any]
) -> BaseException:
    """Return the error to raise in place of an error that Keras raised for a batch.

    Args:
      error: an error that Keras raised while it traced a step or built the model.
      label: a description of the model for the message, such as "tf_keras model digits".
      parts: name of a part of the batch, such as "features" → a tensor, a nest of tensors, or None.

    Returns:
      An InvalidSetting that describes the batch; or the original error, if it is a TpuserveError,
      which already has a clear message.
    """
    original = _original_error(error)
    if isinstance(original, TpuserveError):
        return original
    shapes = ", ".join(f"{name} {_format_shapes(part)}" for name, part in parts.items())
    explained = InvalidSetting(
        f"{label} cannot process the batch: {_first_sentence(original)} The batch has {shapes}. "
        f"input_fn must return (features, labels) or (features, labels, sample_weight), as for "
        f"model.fit."
    )
    explained.__cause__ = original
    return explained


def _original_error(error: BaseException) -> BaseException:
    """Return the error that AutoGraph has replaced by an error with a long message."""
    while hasattr(error.__context__, "ag_error_metadata"):
        assert error.__context__ is not None
        error = error.__context__
    return error


def _first_sentence(error: BaseException) -> str:
    """Cut an error's message to its first line that describes the problem; return a sentence."""
    text = _COLOUR_CODE.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Skip the line with which Keras's message starts: it names the layer and not the problem.
    problems = [line for line in lines if not line.startswith("Exception encountered")]
    sentence = (problems or lines or [type(error).__name__])[0]
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _format_shapes(part: Any) -> str:
    """Format the dtypes and shapes of a nest of tensors."""
    if part is None:
        return "none"
    if isinstance(part, dict):
        return (
            "{"
            + ", ".join(f"{name}: {_format_shapes(value)}" for name, value in part.items())
            + "}"
        )
    if isinstance(part, (list, tuple)):
        return "[" + ", ".join(_format_shapes(value) for value in part) + "]"
    return f"{part.dtype.name}{part.shape}"
