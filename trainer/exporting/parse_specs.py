"""How tf.Examples of features and a label are parsed for a classifier or a regressor."""

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
    """Name → parsing feature, for tf.io.parse_example: one label an example, a class.

    Args:
      feature_columns: what the model reads.
      label_key: name of the label.
      label_dtype: tf.int64 for class numbers, tf.string for class names.
      label_default: the label of an example without one; None makes that an error.
      weight_column: name of the examples' weights, or a numeric column; None for none.

    Raises:
      InvalidSetting: the label or the weight is a feature, or a default does not fit its type.
      InvalidType: the weight column is neither a name nor a numeric column.
    """
    label = tf.io.FixedLenFeature((1,), label_dtype, _default(label_default, label_dtype))
    return _with_label(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: Any = tf.float32,
    label_default: Any = None,
    label_dimension: int = 1,
    weight_column: Any = None,
) -> dict[str, Any]:
    """Name → parsing feature, for tf.io.parse_example: one label an example, numbers.

    Args:
      feature_columns, label_key, label_default, weight_column: see
        `classifier_parse_example_spec`.
      label_dtype: a type of numbers.
      label_dimension: how many numbers a label has.

    Raises:
      InvalidSetting: the label or the weight is a feature, or a default does not fit its type.
      InvalidType: the weight column is neither a name nor a numeric column.
    """
    default = _default(label_default, label_dtype)
    label = tf.io.FixedLenFeature((label_dimension,), label_dtype, default)
    return _with_label(feature_columns, label_key, label, weight_column)


def _default(default: Any, dtype: Any) -> Any:
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


def _with_label(
    feature_columns: Iterable[Any], label_key: str, label: Any, weight_column: Any
) -> dict[str, Any]:
    spec: dict[str, Any] = dict(tf.feature_column.make_parse_example_spec(list(feature_columns)))
    _add(spec, "label", {label_key: label})
    if weight_column is None:
        return spec
    if isinstance(weight_column, str):
        weight_column = tf.feature_column.numeric_column(weight_column)
    if not isinstance(weight_column, type(tf.feature_column.numeric_column("any"))):
        raise InvalidType(
            f"weight_column is {weight_column!r}. Give a name, or a "
            f"tf.feature_column.numeric_column."
        )
    _add(spec, "weight", weight_column.parse_example_spec)
    return spec


def _add(spec: dict[str, Any], role: str, added: Mapping[str, Any]) -> None:
    for name, feature in added.items():
        if name in spec:
            raise InvalidSetting(
                f"{role} should not be used as feature: {role} key {name!r} is that of a feature "
                f"or label already. Rename one, or take the column out."
            )
        spec[name] = feature
