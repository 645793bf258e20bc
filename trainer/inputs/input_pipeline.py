"""Converts the return value of an input_fn to tensors of features and labels in the graph."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.hooks.training_hooks import DatasetInitializerHook
from trainer.inputs.nests import flatten_parts, map_parts

# The key is no string: TensorFlow would write a collection with a string as key into metagraphs.
_COLLECTION = ("trainer_dataset_tensors",)


def next_element(dataset: Any) -> Any:
    """Return the tensors of a Dataset's next element, in the default graph.

    The tensors need no initializer, so they also work in a session that the program creates.
    """
    element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
    tf.compat.v1.add_to_collection(_COLLECTION, (tf.nest.flatten(element), dataset))
    return element


def make_iterator(dataset: Any) -> Any:
    """Return an initializable iterator of a Dataset in the default graph."""
    try:
        return tf.compat.v1.data.make_initializable_iterator(dataset)
    except ValueError as error:
        if "is different from the graph" not in str(error):
            raise
        raise InvalidSetting(
            "input_fn returned a Dataset that was made outside of it, in another graph. Create the "
            "Dataset inside input_fn."
        ) from error


def find_dataset(returned: Any) -> Any:
    """Return the Dataset from which `next_element` has built tensors.

    Any value that does not come from `next_element` is returned unchanged.
    """
    if isinstance(returned, tf.data.Dataset):
        return returned
    tensors = [id(tensor) for tensor in flatten_parts(returned)]
    for element, dataset in tf.compat.v1.get_collection(_COLLECTION):
        if tensors == [id(tensor) for tensor in element]:
            return dataset
    return returned


@dataclass(frozen=True)
class Inputs:
    """The tensors of one batch in the graph.

    Attributes:
      labels: a nested structure of tensors; None if the input has no labels.
      read: an op that takes the batch from the Dataset; without it, a run whose fetches need only
        static shapes would read no batch, and the input would not end. None without a Dataset.
    """

    features: Any
    labels: Any
    hooks: tuple[Any, ...] = ()
    read: Any = None


def build_inputs(returned: Any) -> Inputs:
    """Convert the result of an input_fn to the tensors of the next batch.

    Args:
      returned: a tf.data.Dataset of features or of (features, labels); or features or (features,
        labels) as nested structures of tensors, arrays and Python values.
    """
    if isinstance(returned, tf.data.Dataset):
        iterator = make_iterator(returned)
        element = iterator.get_next()
        features, labels = split_features_and_labels(element)
        read = tf.group(*(part for part in flatten_parts(element) if part is not None))
        return Inputs(features, labels, (DatasetInitializerHook(iterator.initializer),), read)
    features, labels = map_parts(_to_tensor, split_features_and_labels(returned))
    if not all(map(_is_value, flatten_parts((features, labels)))) or features is None:
        raise InvalidSetting(
            f"input_fn returned {returned!r}. Return a tf.data.Dataset, or tensors as "
            f"(features, labels)."
        )
    return Inputs(features, labels)


def _to_tensor(part: Any) -> Any:
    """Convert an array to a constant tensor; return any other value unchanged."""
    return tf.constant(part) if isinstance(part, np.ndarray) else part


def _is_value(part: Any) -> bool:
    """Return whether a value can be a feature or label: a tensor, number, string or None."""
    return part is None or tf.is_tensor(part) or isinstance(part, (bool, int, float, str, bytes))


def split_features_and_labels(batch: Any) -> tuple[Any, Any]:
    """Split a batch, which an input_fn or a Dataset returned, into features and labels."""
    if isinstance(batch, (tuple, list)):
        if len(batch) == 1:
            return batch[0], None
        if len(batch) != 2:
            raise InvalidSetting(
                f"the input has elements of {len(batch)} parts. Give features, or the pair "
                f"(features, labels)."
            )
        return batch[0], batch[1]
    return batch, None
