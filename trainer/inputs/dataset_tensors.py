"""Builds the tensors of a Dataset's next element, and finds the Dataset from these tensors.

Programs for TensorFlow 1 expect an input function to return tensors.
"""

from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.inputs.nests import flatten_parts

_COLLECTION = "trainer_dataset_tensors"


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
