"""Serialized tf.Examples with the features that a model looks for."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tpuserve.samples.parsing import ExampleFeature
from tpuserve.samples.values import WORDS
from tpuserve.saved_model import dtypes

# Of a list that may be of any length. All such lists of one tf.Example are of one length, since
# two of them may be the indices and the values of one sparse tensor.
LONGEST_LIST = 2


def serialized_example(features: Sequence[ExampleFeature], random: np.random.Generator) -> bytes:
    """One tf.Example that holds all the features, as it goes over the wire."""
    example = tf.train.Example()
    length = int(random.integers(1, LONGEST_LIST + 1))
    for each in features:
        _fill(example.features.feature[each.key], each, length, random)
    return bytes(example.SerializeToString(deterministic=True))


def _fill(
    message: tf.train.Feature, feature: ExampleFeature, length: int, random: np.random.Generator
) -> None:
    count = length if feature.size is None else feature.size
    if feature.dtype == dtypes.STRING:
        message.bytes_list.value.extend(
            WORDS[each] for each in random.integers(0, len(WORDS), count)
        )
    elif feature.dtype in dtypes.WHOLE_NUMBERS:
        message.int64_list.value.extend(_whole_numbers(feature, count, random))
    else:
        message.float_list.value.extend(random.random(count, np.float32))


def _whole_numbers(feature: ExampleFeature, count: int, random: np.random.Generator) -> list[int]:
    if feature.size is None:
        # No number twice: they may be the indices of a sparse tensor.
        return [int(each) for each in random.permutation(LONGEST_LIST)[:count]]
    return [int(each) for each in random.integers(0, 2, count)]
