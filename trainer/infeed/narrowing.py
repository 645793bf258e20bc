"""Feeds int64 tensors as int32, because an infeed has no int64; a core converts them back."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from trainer.infeed.tensor_nest import TensorLeaf

logger = logging.getLogger("tensorflow.trainer")

_warned: set[str] = set()


def warn_once(leaves: Iterable[TensorLeaf]) -> None:
    """Log a warning that int64 tensors are fed as int32, once per process for each tensor."""
    wide = [str(leaf) for leaf in leaves if leaf.spec.dtype == tf.int64]
    new = [leaf for leaf in wide if leaf not in _warned]
    if new:
        _warned.update(new)
        logger.warning(
            "%s from input_fn is fed to the TPU as int32, with a check that the values fit, and "
            "model_fn gets int64, which a TPU computes slowly. tf.cast(x, tf.int32) in input_fn "
            "avoids both",
            ", ".join(new),
        )


def narrow(tensors: Sequence[Any], leaves: Sequence[TensorLeaf]) -> list[Any]:
    """Convert the int64 tensors of a batch to int32, on the host.

    Args:
      tensors: the tensors that `leaves` describes, in order. Further tensors at the end, such as a
        mask, are not converted.

    Raises:
      tf.errors.InvalidArgumentError: raised when the results are computed: a value does not fit
        into 32 bits.
    """
    narrowed = [_narrow(tensor, leaf) for tensor, leaf in zip(tensors, leaves, strict=False)]
    return [*narrowed, *tensors[len(leaves) :]]


def fed_dtype(dtype: Any) -> Any:
    """Return the dtype in which the infeed transfers a tensor: int32 for int64, else `dtype`."""
    return tf.int32 if dtype == tf.int64 else dtype


def widen(tensors: Sequence[Any], leaves: Sequence[TensorLeaf]) -> list[Any]:
    """Convert int32 tensors from the infeed back to int64 where input_fn returned int64.

    Args:
      tensors: the tensors that `leaves` describes, in order. Further tensors at the end, such as a
        mask, are not converted.
    """
    widened = [
        tf.cast(tensor, tf.int64) if leaf.spec.dtype == tf.int64 else tensor
        for tensor, leaf in zip(tensors, leaves, strict=False)
    ]
    return [*widened, *tensors[len(leaves) :]]


def _narrow(tensor: Any, leaf: TensorLeaf) -> Any:
    if leaf.spec.dtype != tf.int64:
        return tensor
    narrowed = tf.cast(tensor, tf.int32)
    check = tf.debugging.assert_equal(
        tf.cast(narrowed, tf.int64),
        tensor,
        f"{leaf} from input_fn has a value that 32 bits cannot hold, and a TPU is fed 32 bits. "
        f"Give smaller values, or two tensors of 32 bits",
    )
    with tf.control_dependencies([check]):
        return tf.identity(narrowed)
