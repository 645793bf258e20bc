"""From what an input_fn returns to features and labels in the graph."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.hooks.training_hooks import DatasetInitializerHook


@dataclass(frozen=True)
class Inputs:
    """One batch in the graph.

    Attributes:
      features, labels: nests of tensors; labels are None where the input has none.
      hooks: what must run so that the tensors can be read.
    """

    features: Any
    labels: Any
    hooks: tuple[Any, ...] = ()


def build_inputs(returned: Any) -> Inputs:
    """The next batch of what an input_fn returned.

    Args:
      returned: a tf.data.Dataset of features or (features, labels), or such tensors or arrays.

    Raises:
      InvalidSetting: it is nothing of the kind.
    """
    if isinstance(returned, tf.data.Dataset):
        iterator = tf.compat.v1.data.make_initializable_iterator(returned)
        features, labels = split_features_and_labels(iterator.get_next())
        return Inputs(features, labels, (DatasetInitializerHook(iterator.initializer),))
    features, labels = tf.nest.map_structure(_tensor, split_features_and_labels(returned))
    if not any(tf.is_tensor(each) for each in tf.nest.flatten(features)):
        raise InvalidSetting(
            f"input_fn returned {returned!r}. Return a tf.data.Dataset, or tensors as "
            f"(features, labels)."
        )
    return Inputs(features, labels)


def _tensor(part: Any) -> Any:
    return tf.constant(part) if isinstance(part, np.ndarray) else part


def split_features_and_labels(batch: Any) -> tuple[Any, Any]:
    """Features and labels of what an input_fn or a Dataset gave; labels are None without any."""
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
