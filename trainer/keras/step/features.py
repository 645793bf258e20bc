"""From features and labels, as an input_fn gives them, to what a Keras model takes."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tpuserve.errors import InvalidSetting

# What a trainer adds to features that are a dict.
_ADDED = "is_padding"

_WITH_WEIGHTS = {"features", "sample_weights"}


class WeightedLabels(NamedTuple):
    """Labels, and how much each row counts; together they are the labels of a model_fn.

    Attributes:
      labels: as the model takes them.
      sample_weight: [batch], or nested as the labels are.
    """

    labels: Any
    sample_weight: Any


def accept_sample_weights(input_fn: Callable[..., Any]) -> Callable[..., Any]:
    """The input_fn, which may give (x, y, sample_weight) as well."""
    if not callable(input_fn):
        return input_fn

    @functools.wraps(input_fn)
    def weighted(*arguments: Any, **named: Any) -> Any:
        returned = input_fn(*arguments, **named)
        if isinstance(returned, tf.data.Dataset):
            spec = returned.element_spec
            if isinstance(spec, (tuple, list)) and len(spec) == 3:
                return returned.map(lambda x, y, weight: (x, WeightedLabels(y, weight)))
        elif isinstance(returned, (tuple, list)) and len(returned) == 3:
            x, y, weight = returned
            return x, WeightedLabels(y, weight)
        return returned

    # As functools.partial says what it has bound.
    weighted.keywords = getattr(input_fn, "keywords", {})  # type: ignore[attr-defined]
    return weighted


def labels_and_weights(labels: Any) -> WeightedLabels:
    """The labels of a model_fn, with None for weights that are not there."""
    return labels if isinstance(labels, WeightedLabels) else WeightedLabels(labels, None)


def split_sample_weights(features: Any, inputs: Any) -> tuple[Any, Any]:
    """Features, and the weights of rows that are among them, or None.

    An input_fn for `tf.keras.estimator.model_to_estimator` gives weights so, as the docstring of
    that says: features are a dict of "features" and "sample_weights".

    Args:
      features: as the input_fn gives them.
      inputs: the names of the model's inputs; see `select_model_inputs`.
    """
    if not isinstance(features, Mapping) or set(features) - {_ADDED} != _WITH_WEIGHTS:
        return features, None
    if _WITH_WEIGHTS & set([inputs] if isinstance(inputs, str) else inputs or ()):
        return features, None
    return features["features"], features["sample_weights"]


def select_model_inputs(features: Any, inputs: Any, where: str) -> Any:
    """What the model is called with.

    Args:
      features: a tensor, or a nest of them, as the input_fn or a request gives it.
      inputs: the names of the model's inputs: one, or a list or dict of them; None where the
        model does not say.
      where: names the model in errors.

    Raises:
      InvalidSetting: an input is missing.
    """
    if not isinstance(features, Mapping):
        return features
    names = [inputs] if isinstance(inputs, str) else list(inputs or ())
    features = {name: each for name, each in features.items() if name != _ADDED or name in names}
    if inputs is None:
        return features["feature"] if list(features) == ["feature"] else features
    if isinstance(inputs, str):
        # A request and a Dataset may name the only input as they like.
        return features[inputs] if inputs in features else _only_feature(features, inputs, where)
    missing = [name for name in names if name not in features]
    if missing:
        raise InvalidSetting(
            f"{where} has the inputs {', '.join(names)}, and the features have "
            f"{', '.join(features) or 'none'}: {', '.join(missing)} is missing. Name the "
            f"features as the inputs are."
        )
    if isinstance(inputs, Mapping):
        return {name: features[name] for name in names}
    return [features[name] for name in names]


def _only_feature(features: Mapping[str, Any], name: str, where: str) -> Any:
    if len(features) != 1:
        raise InvalidSetting(
            f"{where} has the input {name}, and the features have {', '.join(features) or 'none'}. "
            f"Give the tensor alone, or under the name of the input."
        )
    return next(iter(features.values()))


def apply_class_weights(labels: Any, sample_weight: Any, class_weight: Mapping[int, float]) -> Any:
    """How much each row counts, by its class as well; a class that is not named counts 1.

    Args:
      labels: one tensor: classes [batch] or [batch, 1], or one-hot rows [batch, classes].
      sample_weight: [batch], or None.
      class_weight: class → weight.

    Raises:
      InvalidSetting: there are labels for several outputs.
    """
    flat = tf.nest.flatten(labels)
    if len(flat) != 1:
        raise InvalidSetting(
            f"class_weight is given to a model with {len(flat)} outputs, and says nothing of which "
            f"of them it means. Give sample weights with the input."
        )
    (classes,) = flat
    if classes.shape.rank == 2:
        classes = (
            tf.squeeze(classes, axis=1) if classes.shape[1] == 1 else tf.argmax(classes, axis=1)
        )
    classes = tf.cast(tf.round(classes) if classes.dtype.is_floating else classes, tf.int32)
    of_row = tf.ones_like(classes, tf.float32)
    for number, weight in class_weight.items():
        of_row = tf.where(tf.equal(classes, number), tf.constant(weight, tf.float32), of_row)
    return of_row if sample_weight is None else of_row * tf.cast(sample_weight, tf.float32)
