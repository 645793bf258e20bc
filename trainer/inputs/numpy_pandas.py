"""numpy_input_fn and pandas_input_fn: input functions that read arrays and DataFrames in memory."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.inputs import input_pipeline

__all__ = ["numpy_input_fn", "pandas_input_fn"]


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int | None = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """Build an input_fn that returns the rows of arrays in batches.

    The last batch holds the remaining rows.

    Args:
      x: the features: name → array [rows, ...], or one array [rows, ...].
      y: the labels, in the same forms; None for features alone.
      num_epochs: how many times all rows are returned; None repeats them without end.

    Returns:
      A function without arguments that returns features or (features, labels), as tensors
      [batch, ...] of the next batch. With eager execution the function returns a tf.data.Dataset.

    Raises:
      InvalidSetting: shuffle is missing, a dict is empty, x and y have different numbers of rows
        or share names, or a number is too small.
      InvalidType: x is neither a dict nor an array, or TensorFlow has no dtype for an array.
    """
    _check_arguments(batch_size, num_epochs, shuffle, queue_capacity, num_threads)
    if not isinstance(x, (Mapping, np.ndarray)):
        raise InvalidType(f"x must be a dict or array; found {type(x).__name__}.")
    features = _to_arrays("x", x)
    labels = None if y is None else _to_arrays("y", y)
    if isinstance(features, dict) and isinstance(labels, dict):
        shared = sorted(features.keys() & labels.keys())
        if shared:
            raise InvalidSetting(
                f"{len(shared)} keys are found in both x and y: {', '.join(shared)}. Rename them "
                f"in x or in y."
            )
    _check_lengths(features, labels)
    return _make_input_fn(features, labels, batch_size, num_epochs, bool(shuffle))


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int | None = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """Build an input_fn that returns the rows of a pandas DataFrame in batches.

    Args:
      x: a DataFrame; each column becomes a feature of shape [batch].
      y: the labels: a Series, or a DataFrame for a dict of labels by column name; None for
        features alone.
      num_epochs: how many times all rows are returned; None repeats them without end.
      target_column: a name that no column of x is allowed to have if y is a Series. tf.estimator
        stored the labels under this name.

    Returns:
      A function without arguments that returns features or (features, labels), as tensors
      [batch, ...] of the next batch. With eager execution the function returns a tf.data.Dataset.

    Raises:
      InvalidSetting: shuffle is missing, x has no columns or no rows, x has a column named
        target_column, x and y have different indices, or a number is too small.
      InvalidType: x is not a DataFrame, y is neither a Series nor a DataFrame, TensorFlow has no
        dtype for a column, or a column of strings has missing values.
    """
    _check_arguments(batch_size, num_epochs, shuffle, queue_capacity, num_threads)
    # Recognize a DataFrame by its attributes and not by isinstance, so that pandas need not be
    # imported.
    if not _is_table(x):
        raise InvalidType(f"x must be a pandas DataFrame; found {type(x).__name__}.")
    features = _columns_to_arrays("x", x)
    if not features:
        raise InvalidSetting("x is a DataFrame without columns. Give at least one feature.")
    labels: Any = None
    if y is not None:
        if not hasattr(y, "index") or not hasattr(y, "to_numpy"):
            raise InvalidType(f"y must be a pandas Series or DataFrame; found {type(y).__name__}.")
        if _is_table(y):
            labels = _columns_to_arrays("y", y)
        elif target_column in x.columns:
            raise InvalidSetting(
                f"Cannot use name {target_column} for target column: the DataFrame already has a "
                f"column with that name. Name another target_column."
            )
        else:
            labels = _to_array("y", y.to_numpy())
        if not np.array_equal(x.index, y.index):
            raise InvalidSetting(
                f"Index for x and y are mismatched: {_format_index(x.index)} and "
                f"{_format_index(y.index)}. Give both the same rows in the same order."
            )
    _check_lengths(features, labels)
    return _make_input_fn(features, labels, batch_size, num_epochs, bool(shuffle))


def _make_input_fn(
    features: Any, labels: Any, batch_size: int, num_epochs: int | None, shuffle: bool
) -> Callable[[], Any]:
    """Build an input_fn that returns the rows of validated arrays in batches."""
    columns = features if labels is None else (features, labels)
    arrays = tf.nest.flatten(columns)
    rows = len(arrays[0])
    is_whole = num_epochs is None or rows * num_epochs % batch_size == 0
    dtypes = [tf.as_dtype(array.dtype) for array in arrays]

    def take_rows(indices: Any) -> list[Any]:
        return [array[indices] for array in arrays]

    def batch_at(indices: Any) -> Any:
        batch = tf.numpy_function(take_rows, [indices], dtypes)
        for tensor, array in zip(batch, arrays, strict=True):
            tensor.set_shape([indices.shape[0], *array.shape[1:]])
        return tf.nest.pack_sequence_as(columns, batch)

    def make_dataset() -> Any:
        indices = tf.data.Dataset.range(rows)
        if shuffle:
            # Shuffle row indices and not the rows themselves. Indices take little memory, so the
            # shuffle buffer can hold all of them.
            indices = indices.shuffle(rows)
        # Set drop_remainder if all batches are full. Then it drops nothing, but gives the tensors
        # the static shape that TPUs need.
        batches = indices.repeat(num_epochs).batch(batch_size, drop_remainder=is_whole)
        return batches.map(batch_at).prefetch(tf.data.AUTOTUNE)

    def input_fn() -> Any:
        dataset = make_dataset()
        return dataset if tf.executing_eagerly() else input_pipeline.next_element(dataset)

    return input_fn


def _check_arguments(
    batch_size: int,
    num_epochs: int | None,
    shuffle: Any,
    queue_capacity: int | None,
    num_threads: int,
) -> None:
    """Check the arguments that numpy_input_fn and pandas_input_fn share."""
    if not isinstance(shuffle, bool):
        raise InvalidSetting(
            f"shuffle is {shuffle!r}. It must be provided and explicitly set as boolean: True is "
            f"recommended for training, False for evaluation."
        )
    validation.check_integer("batch_size", batch_size, least=1)
    validation.check_integer("num_epochs", num_epochs, least=0, optional=True)
    validation.check_integer("queue_capacity", queue_capacity, least=1, optional=True)
    validation.check_integer("num_threads", num_threads, least=1)


def _to_arrays(name: str, value: Any) -> Any:
    """Convert an argument to a validated array, or to a dict of validated arrays."""
    if not isinstance(value, Mapping):
        return _to_array(name, value)
    if not value:
        raise InvalidSetting(f"{name} cannot be an empty dict. Give at least one array.")
    # Keep the type of the dict, because it determines the order of the tensors: a Dataset sorts the
    # keys of a plain dict, but not those of an OrderedDict.
    is_ordered = isinstance(value, collections.OrderedDict)
    arrays = collections.OrderedDict() if is_ordered else {}
    arrays.update({key: _to_array(f"{name}[{key!r}]", array) for key, array in value.items()})
    return arrays


def _columns_to_arrays(name: str, table: Any) -> dict[str, Any]:
    return {
        column: _to_array(f"{name}[{column!r}]", table[column].to_numpy())
        for column in table.columns
    }


def _to_array(name: str, value: Any) -> Any:
    """Convert a value to an array whose dtype TensorFlow supports."""
    array = np.asarray(value)
    if array.ndim == 0:
        raise InvalidType(f"{name} is {value!r}. Give an array whose first dimension is rows.")
    if array.dtype == object:
        for index, element in enumerate(array.flat):
            if not isinstance(element, (str, bytes)):
                raise InvalidType(
                    f"{name} holds objects, such as {element!r} as number {index}. Give "
                    f"strings, or numbers of one type, without missing values."
                )
    try:
        tf.as_dtype(array.dtype)
    except TypeError as error:
        raise InvalidType(
            f"{name} has type {array.dtype}, which TensorFlow does not have. Convert it to "
            f"numbers or strings."
        ) from error
    return array


def _check_lengths(features: Any, labels: Any) -> None:
    """Check that all arrays of the features and labels have the same number of rows, at least 1."""
    lengths = {
        f"{name}[{key!r}]" if isinstance(part, dict) else name: len(array)
        for name, part in (("x", features), ("y", labels))
        if part is not None
        for key, array in (part.items() if isinstance(part, dict) else ((None, part),))
    }
    summary = ", ".join(f"{name} has {length}" for name, length in lengths.items())
    if len(set(lengths.values())) > 1:
        raise InvalidSetting(
            f"Length of tensors in x and y is mismatched; all must have the same number of rows: "
            f"{summary}."
        )
    if not next(iter(lengths.values())):
        raise InvalidSetting(f"there are no rows to give: {summary}.")


def _is_table(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "index") and hasattr(value, "to_numpy")


def _format_index(index: Any) -> str:
    """Describe a DataFrame's index by its length and its first label, for errors."""
    return f"{len(index)} rows from {index[0]!r}" if len(index) else "no rows"
