"""The tensors of a Dataset's next element, from which an estimator finds the Dataset again.

Programs of TensorFlow 1 expect tensors from an input function. A TPU needs the Dataset itself: it
shows where the input ends, and its batches can be taken without a call of Python.
"""

from typing import Any

import tensorflow as tf

_COLLECTION = "trainer_dataset_tensors"


def next_element(dataset: Any) -> Any:
    """Return the tensors of a Dataset's next element, in the default graph.

    No initializer has to be run: a session also gives the tensors outside of an estimator.
    """
    element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
    tf.compat.v1.add_to_collection(_COLLECTION, (tf.nest.flatten(element), dataset))
    return element


def find_dataset(returned: Any) -> Any:
    """Return the Dataset of a result of `next_element`; return any other value unchanged.

    Args:
      returned: the return value of an input_fn.
    """
    if isinstance(returned, tf.data.Dataset):
        return returned
    tensors = [id(tensor) for tensor in tf.nest.flatten(returned)]
    for element, dataset in tf.compat.v1.get_collection(_COLLECTION):
        if tensors == [id(tensor) for tensor in element]:
            return dataset
    return returned
