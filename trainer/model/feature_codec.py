"""Converts the batch size and dtypes of an input whose input_fn was not written for a TPU."""

import logging
from typing import Any

import tensorflow as tf

from trainer.inputs import input_pipeline
from trainer.model.spec import ModeKeys

logger = logging.getLogger("tensorflow.trainer")

# int64 is not here: the infeed converts it to int32 and back.
_TPU_DTYPES = {
    tf.uint64: tf.uint32,
    tf.int16: tf.int32,
    tf.uint16: tf.int32,
    tf.float64: tf.float32,
    tf.float16: tf.float32,
}
"""Maps a dtype that the infeed does not accept to the dtype that is fed in its place."""


class FeatureCodec:
    """Converts an input to dtypes that a TPU supports, and back to its original dtypes."""

    def __init__(self) -> None:
        self._dtypes: dict[str, tuple[Any, Any]] = {}

    def encode(self, returned: Any, batch_size: int, mode: str) -> Any:
        """Convert an input to batches of `batch_size` examples, with dtypes that a TPU supports.

        Args:
          batch_size: number of examples of a batch. A Dataset with batches of another or of unknown
            size is rebatched.
        """
        if not isinstance(returned, tf.data.Dataset):
            features, labels = input_pipeline.split_features_and_labels(returned)
            self._record_dtypes(features, labels, mode)
            return tf.nest.map_structure(_narrow, returned)
        self._record_dtypes(*input_pipeline.split_features_and_labels(returned.element_spec), mode)
        specs = tf.nest.flatten(returned.element_spec)
        rows = {_count_rows(spec) for spec in specs if _dtype(spec) is not None}
        if rows != {batch_size}:
            sizes = ", ".join(sorted("any" if size is None else str(size) for size in rows))
            logger.info(
                "rebatching the batches of input_fn, of %s rows, to %d rows for the TPU",
                sizes,
                batch_size,
            )
            returned = returned.rebatch(batch_size, drop_remainder=mode == ModeKeys.TRAIN)
        if any(_dtype(spec) in _TPU_DTYPES for spec in specs):
            returned = returned.map(_narrow_element)
        return returned

    def decode(self, features: Any, labels: Any, mode: str) -> tuple[Any, Any]:
        """Return features and labels with the dtypes that input_fn returned.

        Args:
          labels: the labels from the infeed; None without labels.
        """
        dtypes = self._dtypes.get(mode)
        if dtypes is None:
            return features, labels
        feature_dtypes, label_dtypes = dtypes
        return _cast_back(features, feature_dtypes), _cast_back(labels, label_dtypes)

    def _record_dtypes(self, features: Any, labels: Any, mode: str) -> None:
        dtypes = tf.nest.map_structure(_dtype, (features, labels))
        narrowed = sorted({dtype.name for dtype in tf.nest.flatten(dtypes) if dtype in _TPU_DTYPES})
        if narrowed and mode not in self._dtypes:
            logger.info(
                "input of type %s is fed to the TPU in 32 bits; model_fn receives the original",
                ", ".join(narrowed),
            )
        self._dtypes[mode] = dtypes


def _narrow_element(*element: Any) -> Any:
    narrowed = tf.nest.map_structure(_narrow, element)
    return narrowed if len(narrowed) > 1 else narrowed[0]


def _narrow(tensor: Any) -> Any:
    """Convert a tensor to a dtype that the infeed accepts."""
    dtype = _TPU_DTYPES.get(_dtype(tensor))
    if dtype is None:
        return tensor
    narrowed = tf.cast(tensor, dtype)
    if tensor.dtype != tf.uint64:
        return narrowed
    check = tf.debugging.assert_equal(
        tf.cast(narrowed, tf.uint64),
        tensor,
        "A uint64 from input_fn has a value that 32 bits cannot hold, and a TPU is fed 32 bits. "
        "Give smaller values, or two tensors of 32 bits",
    )
    with tf.control_dependencies([check]):
        return tf.identity(narrowed)


def _count_rows(spec: Any) -> int | None:
    # Convert the shape to a list of numbers. With TensorFlow 1's shape behaviour, shape[0] would be
    # a Dimension, which is not hashable and so cannot be in a set.
    return spec.shape.as_list()[0] if spec.shape.rank else None


def _cast_back(part: Any, dtypes: Any) -> Any:
    if isinstance(part, dict) and isinstance(dtypes, dict):
        # Do not cast a feature that input_fn did not return, such as 'is_padding', which the infeed
        # adds.
        return {
            name: _cast_back(value, dtypes[name]) if name in dtypes else value
            for name, value in part.items()
        }
    if part is None or dtypes is None:
        return part
    return tf.nest.map_structure(_cast, part, dtypes)


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor if dtype is None else tf.cast(tensor, dtype)


def _dtype(leaf: Any) -> Any:
    return getattr(leaf, "dtype", None)
