"""Builds the specs with which tf.io.parse_example parses the data of classifiers and regressors."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType


def classifier_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: Any = tf.int64,
    label_default: Any = None,
    weight_column: Any = None,
) -> dict[str, Any]:
    """Build the parsing spec of a classifier's tf.Examples, which have one class label each.

    Args:
      weight_column: the name of the feature that holds the example weights, or a numeric column;
        None if examples have no weights.

    Returns:
      Feature name → parsing feature, for tf.io.parse_example. The label has shape [1].
    """
    label = tf.io.FixedLenFeature((1,), label_dtype, _check_default(label_default, label_dtype))
    return _build_spec(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: Any = tf.float32,
    label_default: Any = None,
    label_dimension: int = 1,
    weight_column: Any = None,
) -> dict[str, Any]:
    """Build the parsing spec of a regressor's tf.Examples, which have one numeric label each."""
    default = _check_default(label_default, label_dtype)
    label = tf.io.FixedLenFeature((label_dimension,), label_dtype, default)
    return _build_spec(feature_columns, label_key, label, weight_column)


def _check_default(default: Any, dtype: Any) -> Any:
    """Check that a label's default value matches the label's dtype, and return the value."""
    if default is None:
        return None
    dtype = tf.as_dtype(dtype)
    is_text = isinstance(default, (str, bytes))
    if is_text != (dtype == tf.string) or (dtype.is_integer and not isinstance(default, int)):
        raise InvalidSetting(
            f"label_default is {default!r}, and label_dtype {dtype.name}. Give a default of that "
            f"type."
        )
    return default


def _build_spec(
    feature_columns: Iterable[Any], label_key: str, label: Any, weight_column: Any
) -> dict[str, Any]:
    spec: dict[str, Any] = dict(tf.feature_column.make_parse_example_spec(list(feature_columns)))
    _add_features(spec, "label", {label_key: label})
    if weight_column is None:
        return spec
    if isinstance(weight_column, str):
        weight_column = tf.feature_column.numeric_column(weight_column)
    if not isinstance(weight_column, type(tf.feature_column.numeric_column("any"))):
        raise InvalidType(
            f"weight_column is {weight_column!r}. Give a name, or a "
            f"tf.feature_column.numeric_column."
        )
    _add_features(spec, "weight", weight_column.parse_example_spec)
    return spec


def _add_features(spec: dict[str, Any], role: str, features: Mapping[str, Any]) -> None:
    for name, feature in features.items():
        if name in spec:
            raise InvalidSetting(
                f"{role} should not be used as feature: {role} key {name!r} is the key of a "
                f"feature or label already. Rename either, or remove the column."
            )
        spec[name] = feature
