"""Input functions over arrays and tables in memory."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import validation

__all__ = ["numpy_input_fn", "pandas_input_fn"]


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """An input_fn that gives the rows of arrays in batches.

    The last batch holds the rows that are left. The arrays are not copied, nor put into the
    graph: rows are taken from them when their batch is due.

    Args:
      x: a dict of features, name → [rows, ...], or one array [rows, ...].
      y: labels, of the same forms; None for features alone.
      batch_size: in rows.
      num_epochs: how often all rows are given; None repeats them without end.
      shuffle: give the rows in a new order each time; it must be said, True or False.
      queue_capacity, num_threads: taken for compatibility: all rows are shuffled together, and
        reading needs no threads.

    Returns:
      A function of nothing that returns a tf.data.Dataset of features, or (features, labels).

    Raises:
      InvalidSetting: shuffle is not given, a dict is empty, x and y have different numbers of
        rows or share names, or a number is less than 1.
      InvalidType: x is neither a dict nor an array, or an array is of a type that TensorFlow has
        not.
    """
    _check_reading(batch_size, num_epochs, shuffle, queue_capacity, num_threads)
    if not isinstance(x, (Mapping, np.ndarray)):
        raise InvalidType(f"x must be a dict or array; found {type(x).__name__}.")
    features = _arrays("x", x)
    labels = None if y is None else _arrays("y", y)
    if isinstance(features, dict) and isinstance(labels, dict):
        shared = sorted(features.keys() & labels.keys())
        if shared:
            raise InvalidSetting(
                f"{len(shared)} keys are found in both x and y: {', '.join(shared)}. Rename them "
                f"in one."
            )
    _check_lengths(features, labels)
    return _rows_input_fn(features, labels, batch_size, num_epochs, bool(shuffle))


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """An input_fn that gives the rows of a pandas DataFrame in batches.

    Args:
      x: a DataFrame; each column is a feature of shape [batch].
      y: labels: a Series, or a DataFrame, which gives a dict of labels by column; None for
        features alone.
      batch_size: in rows.
      num_epochs: how often all rows are given; None repeats them without end.
      shuffle: give the rows in a new order each time; it must be said, True or False.
      queue_capacity, num_threads: taken for compatibility, see `numpy_input_fn`.
      target_column: a name that no column of x may have when y is given; labels were kept
        under it.

    Returns:
      A function of nothing that returns a tf.data.Dataset of features, or (features, labels).

    Raises:
      InvalidSetting: shuffle is not given, x has a column named target_column, x and y have
        different indices, or a number is less than 1.
      InvalidType: x is no DataFrame, or a column is of a type that TensorFlow has not, or has
        missing values in place of strings.
    """
    _check_reading(batch_size, num_epochs, shuffle, queue_capacity, num_threads)
    # By what it can do, not by its class: who has a DataFrame has pandas, and nobody else needs it.
    if not _is_table(x):
        raise InvalidType(f"x must be a pandas DataFrame; found {type(x).__name__}.")
    features = _columns("x", x)
    if not features:
        raise InvalidSetting("x is a DataFrame without columns. Give at least one feature.")
    labels: Any = None
    if y is not None:
        if not hasattr(y, "index") or not hasattr(y, "to_numpy"):
            raise InvalidType(f"y must be a pandas Series or DataFrame; found {type(y).__name__}.")
        if _is_table(y):
            labels = _columns("y", y)
        elif target_column in x.columns:
            raise InvalidSetting(
                f"Cannot use name {target_column} for target column: the DataFrame already has a "
                f"column with that name. Name another target_column."
            )
        else:
            labels = _array("y", y.to_numpy())
        if not np.array_equal(x.index, y.index):
            raise InvalidSetting(
                f"Index for x and y are mismatched: {_shown(x.index)} and {_shown(y.index)}. "
                f"Give both the same rows in the same order."
            )
    return _rows_input_fn(features, labels, batch_size, num_epochs, bool(shuffle))


def _rows_input_fn(
    features: Any, labels: Any, batch_size: int, num_epochs: int | None, shuffle: bool
) -> Callable[[], Any]:
    columns = features if labels is None else (features, labels)
    arrays = tf.nest.flatten(columns)
    rows = len(arrays[0])
    is_whole = num_epochs is None or rows * num_epochs % batch_size == 0
    types = [tf.as_dtype(each.dtype) for each in arrays]

    def take(indices: Any) -> list[Any]:
        return [each[indices] for each in arrays]

    def batch_at(indices: Any) -> Any:
        batch = tf.numpy_function(take, [indices], types)
        for tensor, array in zip(batch, arrays, strict=True):
            tensor.set_shape([indices.shape[0], *array.shape[1:]])
        return tf.nest.pack_sequence_as(columns, batch)

    def input_fn() -> Any:
        indices = tf.data.Dataset.range(rows)
        if shuffle:
            # Numbers are small, so that all of them can be shuffled together.
            indices = indices.shuffle(rows)
        # Where no batch is smaller, saying so gives the tensors a static shape, which TPUs need.
        batches = indices.repeat(num_epochs).batch(batch_size, drop_remainder=is_whole)
        return batches.map(batch_at).prefetch(tf.data.AUTOTUNE)

    return input_fn


def _check_reading(
    batch_size: int, num_epochs: int | None, shuffle: Any, queue_capacity: int, num_threads: int
) -> None:
    if not isinstance(shuffle, bool):
        raise InvalidSetting(
            f"shuffle is {shuffle!r}. It must be provided and explicitly set as boolean: True is "
            f"recommended for training, False for evaluation."
        )
    validation.check("batch_size", batch_size, least=1, optional=False)
    validation.check("num_epochs", num_epochs, least=1)
    validation.check("queue_capacity", queue_capacity, least=1, optional=False)
    validation.check("num_threads", num_threads, least=1, optional=False)


def _arrays(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _array(name, value)
    if not value:
        raise InvalidSetting(f"{name} cannot be an empty dict. Give at least one array.")
    # Plain dicts come out of a Dataset in the order of their keys anyway.
    ordered = isinstance(value, collections.OrderedDict)
    made = collections.OrderedDict() if ordered else {}
    made.update({key: _array(f"{name}[{key!r}]", each) for key, each in value.items()})
    return made


def _columns(name: str, table: Any) -> dict[str, Any]:
    return {each: _array(f"{name}[{each!r}]", table[each].to_numpy()) for each in table.columns}


def _array(name: str, value: Any) -> Any:
    array = np.asarray(value)
    if array.ndim == 0:
        raise InvalidType(f"{name} is {value!r}. Give an array whose first dimension is rows.")
    if array.dtype == object:
        for row, each in enumerate(array.flat):
            if not isinstance(each, (str, bytes)):
                raise InvalidType(
                    f"{name} holds objects, such as {each!r} as number {row}. Give strings, or "
                    f"numbers of one type, without missing values."
                )
    try:
        tf.as_dtype(array.dtype)
    except TypeError as error:
        raise InvalidType(
            f"{name} has type {array.dtype}, which TensorFlow has not. Convert it to numbers or "
            f"strings."
        ) from error
    return array


def _check_lengths(features: Any, labels: Any) -> None:
    lengths = {
        f"{name}[{key!r}]" if isinstance(part, dict) else name: len(array)
        for name, part in (("x", features), ("y", labels))
        if part is not None
        for key, array in (part.items() if isinstance(part, dict) else ((None, part),))
    }
    found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
    if len(set(lengths.values())) > 1:
        raise InvalidSetting(
            f"Length of tensors in x and y is mismatched; all must have the same number of rows: "
            f"{found}."
        )
    if not next(iter(lengths.values())):
        raise InvalidSetting(f"there are no rows to give: {found}.")


def _is_table(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "index") and hasattr(value, "to_numpy")


def _shown(index: Any) -> str:
    return f"{len(index)} rows from {index[0]!r}" if len(index) else "no rows"
