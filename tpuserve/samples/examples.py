"""Generates random tf.Examples that have the features that a model parses."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tpuserve.samples.parsing import ParsedFeature
from tpuserve.samples.values import WORDS
from tpuserve.saved_model import dtypes

# The largest number of values of a feature of variable length. All such features of one tf.Example
# have the same length, because two of them may be the indices and the values of a sparse tensor.
MAX_LENGTH = 2


def serialized_example(features: Sequence[ParsedFeature], random: np.random.Generator) -> bytes:
    """Return a serialized tf.Example that has random values for all of the features."""
    example = tf.train.Example()
    length = int(random.integers(1, MAX_LENGTH + 1))
    for feature in features:
        _fill(example.features.feature[feature.key], feature, length, random)
    return bytes(example.SerializeToString(deterministic=True))


def _fill(
    message: tf.train.Feature, feature: ParsedFeature, length: int, random: np.random.Generator
) -> None:
    count = length if feature.size is None else feature.size
    if feature.dtype == dtypes.STRING:
        message.bytes_list.value.extend(
            WORDS[index] for index in random.integers(0, len(WORDS), count)
        )
    elif feature.dtype in dtypes.WHOLE_NUMBERS:
        message.int64_list.value.extend(_whole_numbers(feature, count, random))
    else:
        message.float_list.value.extend(random.random(count, np.float32))


def _whole_numbers(feature: ParsedFeature, count: int, random: np.random.Generator) -> list[int]:
    if feature.size is None:
        # Return numbers without duplicates, because they may be the indices of a sparse tensor.
        return [int(number) for number in random.permutation(MAX_LENGTH)[:count]]
    return [int(number) for number in random.integers(0, 2, count)]
