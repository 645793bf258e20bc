"""Converts the features and labels of an input_fn to the arguments of a Keras model."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tpuserve.errors import InvalidSetting, MissingKey
from trainer.config import user_functions

# The name of a feature that TPUEstimator adds to a dict of features: it marks the examples that are
# padding. It is not an input of the model.
_PADDING_MASK = "is_padding"

_FEATURES_AND_WEIGHTS = {"features", "sample_weights"}


class WeightedLabels(NamedTuple):
    """Labels and sample weights, which the model_fn receives together as its argument `labels`.

    Attributes:
      sample_weight: the weights of the examples [batch size], or a nest like the labels; None
        without weights.
    """

    labels: Any
    sample_weight: Any


def accept_sample_weights(input_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an input_fn that may return sample weights, which TPUEstimator does not accept.

    Returns:
      An input_fn that returns the same, except that (features, labels, sample_weight) becomes
      (features, WeightedLabels). If the argument is not callable, it is returned unchanged.
    """
    if not callable(input_fn):
        return input_fn

    @user_functions.wraps(input_fn)
    def weighted_input_fn(*arguments: Any, **named: Any) -> Any:
        returned = input_fn(*arguments, **named)
        if isinstance(returned, tf.data.Dataset):
            spec = returned.element_spec
            if isinstance(spec, (tuple, list)) and len(spec) == 3:
                return returned.map(lambda x, y, weight: (x, WeightedLabels(y, weight)))
        elif isinstance(returned, (tuple, list)) and len(returned) == 3:
            x, y, weight = returned
            return x, WeightedLabels(y, weight)
        return returned

    return weighted_input_fn


def labels_and_weights(labels: Any) -> WeightedLabels:
    """Return the argument `labels` of a model_fn as WeightedLabels.

    If the input_fn has returned no sample weights, sample_weight is None.
    """
    return labels if isinstance(labels, WeightedLabels) else WeightedLabels(labels, None)


def split_sample_weights(features: Any, input_names: Any) -> tuple[Any, Any]:
    """Split features of the form {"features": ..., "sample_weights": ...}.

    The docstring of `tf.keras.estimator.model_to_estimator` allows this form for sample weights.
    """
    if not isinstance(features, Mapping):
        return features, None
    if set(features) - {_PADDING_MASK} != _FEATURES_AND_WEIGHTS:
        return features, None
    names = [input_names] if isinstance(input_names, str) else input_names or ()
    if _FEATURES_AND_WEIGHTS & set(names):
        return features, None
    return features["features"], features["sample_weights"]


def select_model_inputs(features: Any, input_names: Any, label: str) -> Any:
    """Select the features that are inputs of the model.

    Args:
      input_names: the names of the model's inputs: one name, or a list or dict of names; None if
        the model does not define its inputs.
      label: a description of the model for the error, such as "tf_keras model digits".

    Returns:
      The argument to call the model with. If the features are a dict and input_names is set, the
      argument is structured like input_names.
    """
    if not isinstance(features, Mapping):
        return features
    names = [input_names] if isinstance(input_names, str) else list(input_names or ())
    features = {
        name: feature
        for name, feature in features.items()
        if name != _PADDING_MASK or name in names
    }
    if input_names is None:
        return features["feature"] if list(features) == ["feature"] else features
    if isinstance(input_names, str):
        # The model has a single input. Accept a single feature of any name.
        if input_names in features:
            return features[input_names]
        return _only_feature(features, input_names, label)
    missing = [name for name in names if name not in features]
    if missing:
        raise MissingKey(
            f"{label} has the inputs {', '.join(names)}, and the features are "
            f"{', '.join(features) or 'empty'}: {', '.join(missing)} is missing. Use the names of "
            f"the inputs as the keys of the features."
        )
    if isinstance(input_names, Mapping):
        return {name: features[name] for name in names}
    return [features[name] for name in names]


def _only_feature(features: Mapping[str, Any], name: str, label: str) -> Any:
    if len(features) != 1:
        raise MissingKey(
            f"{label} has the input {name}, and the features are {', '.join(features) or 'empty'}. "
            f"Return the tensor alone, or under the name of the input."
        )
    return next(iter(features.values()))


def apply_class_weights(labels: Any, sample_weight: Any, class_weight: Mapping[int, float]) -> Any:
    """Multiply the sample weight of each example by the weight of the example's class.

    Args:
      labels: one tensor: class numbers [batch size] or [batch size, 1], or one-hot vectors [batch
        size, classes].
      sample_weight: the sample weights [batch size]; None for equal weights.
    """
    tensors = tf.nest.flatten(labels)
    if len(tensors) != 1:
        raise InvalidSetting(
            f"class_weight needs a model with one output, and the model has {len(tensors)} "
            f"outputs. Return sample weights from the input_fn instead."
        )
    (classes,) = tensors
    if classes.shape.rank == 2:
        classes = (
            tf.squeeze(classes, axis=1) if classes.shape[1] == 1 else tf.argmax(classes, axis=1)
        )
    classes = tf.cast(tf.round(classes) if classes.dtype.is_floating else classes, tf.int32)
    weights = tf.ones_like(classes, tf.float32)
    for number, weight in class_weight.items():
        weights = tf.where(tf.equal(classes, number), tf.constant(weight, tf.float32), weights)
    return weights if sample_weight is None else weights * tf.cast(sample_weight, tf.float32)
