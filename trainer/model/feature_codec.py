"""Batches for a TPU from an input_fn that was not written for one."""

import logging
from typing import Any

import tensorflow as tf

from trainer.inputs import input_pipeline
from trainer.model.spec import ModeKeys

logger = logging.getLogger("tensorflow.trainer")

_NARROWED = {
    tf.int64: tf.int32,
    tf.uint64: tf.uint32,
    tf.int16: tf.int32,
    tf.uint16: tf.int32,
    tf.float64: tf.float32,
    tf.float16: tf.float32,
}
"""Types that infeed does not carry → the ones they are carried as."""


class FeatureCodec:
    """What input_fn gives, as it goes to a TPU, and as model_fn knows it."""

    def __init__(self) -> None:
        self._types: dict[str, tuple[Any, Any]] = {}

    def encode(self, returned: Any, batch_size: int, mode: str) -> Any:
        """What input_fn returned, in batches of one size and in types that a TPU takes.

        Args:
          returned: a Dataset, or tensors, of features or (features, labels).
          batch_size: rows of a batch. A Dataset of other batches, or of batches of unknown size,
            is cut anew; rows that are left over in training are dropped, as
            dataset.batch(..., drop_remainder=True) does.
          mode: one of `ModeKeys`.
        """
        if not isinstance(returned, tf.data.Dataset):
            features, labels = input_pipeline.split_features_and_labels(returned)
            self._note(features, labels, mode)
            return tf.nest.map_structure(_narrow, returned)
        self._note(*input_pipeline.split_features_and_labels(returned.element_spec), mode)
        rows = {_rows(each) for each in tf.nest.flatten(returned.element_spec)}
        if rows != {batch_size}:
            found = ", ".join(sorted("any" if each is None else str(each) for each in rows))
            logger.info(
                "batches of input_fn, of %s rows, are cut into batches of %d for the TPU",
                found,
                batch_size,
            )
            returned = returned.rebatch(batch_size, drop_remainder=mode == ModeKeys.TRAIN)
        if any(_type(each) in _NARROWED for each in tf.nest.flatten(returned.element_spec)):
            returned = returned.map(_narrowed)
        return returned

    def decode(self, features: Any, labels: Any, mode: str) -> tuple[Any, Any]:
        """Features and labels of a batch, in the types that input_fn gave them."""
        kinds = self._types.get(mode)
        if kinds is None:
            return features, labels
        feature_types, label_types = kinds
        return _restored(features, feature_types), _restored(labels, label_types)

    def _note(self, features: Any, labels: Any, mode: str) -> None:
        kinds = tf.nest.map_structure(_type, (features, labels))
        narrowed = sorted(
            {each.name for each in tf.nest.flatten(kinds) if each is not None and each in _NARROWED}
        )
        if narrowed and mode not in self._types:
            logger.info(
                "input of type %s goes to the TPU in 32 bits; model_fn gets it as it was",
                ", ".join(narrowed),
            )
        self._types[mode] = kinds


def _narrowed(*element: Any) -> Any:
    changed = tf.nest.map_structure(_narrow, element)
    return changed if len(changed) > 1 else changed[0]


def _narrow(tensor: Any) -> Any:
    wanted = _NARROWED.get(_type(tensor))
    return tensor if wanted is None else tf.cast(tensor, wanted)


def _rows(spec: Any) -> int | None:
    # TensorFlow 1's behaviour makes a Dimension of shape[0], which no set takes.
    return spec.shape.as_list()[0] if spec.shape.rank else None


def _restored(part: Any, kinds: Any) -> Any:
    if isinstance(part, dict) and isinstance(kinds, dict):
        # A prediction's features have one more, which tells padding.
        return {
            name: _restored(each, kinds[name]) if name in kinds else each
            for name, each in part.items()
        }
    if part is None or kinds is None:
        return part
    return tf.nest.map_structure(tf.cast, part, kinds)


def _type(leaf: Any) -> Any:
    """The type of a tensor or of its spec; None for labels that are not there."""
    return getattr(leaf, "dtype", None)
