"""tf.contrib.lookup: TensorFlow's lookup tables with the arguments of tf.contrib."""

from typing import Any

import tensorflow as tf
from tensorflow.compat.v1 import tables_initializer
from tensorflow.python.ops import lookup_ops
from tensorflow.python.ops.lookup_ops import (
    FastHashSpec,
    HasherSpec,
    IdTableWithHashBuckets,
    KeyValueTensorInitializer,
    LookupInterface,
    StrongHashSpec,
    TableInitializerBase,
    TextFileIdTableInitializer,
    TextFileIndex,
    TextFileInitializer,
    TextFileStringTableInitializer,
    index_table_from_file,
    index_to_string_table_from_file,
)
from tensorflow.python.ops.lookup_ops import (
    InitializableLookupTableBaseV1 as InitializableLookupTableBase,
)

from trainer.compat import contrib_missing_names

__all__ = [
    "FastHashSpec",
    "HashTable",
    "HasherSpec",
    "IdTableWithHashBuckets",
    "InitializableLookupTableBase",
    "KeyValueTensorInitializer",
    "LookupInterface",
    "MutableDenseHashTable",
    "MutableHashTable",
    "StrongHashSpec",
    "TableInitializerBase",
    "TextFileIdTableInitializer",
    "TextFileIndex",
    "TextFileInitializer",
    "TextFileStringTableInitializer",
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
    "string_to_index",
    "tables_initializer",
]


class HashTable(lookup_ops.StaticHashTableV1):
    """A lookup table with constant contents.

    The op of tf.compat.v1.tables_initializer fills the table; an estimator runs this op whenever
    it creates a session.

    Args:
      shared_name: the name of the table's op if `name` is None; has no other effect.
    """

    def __init__(
        self,
        initializer: Any,
        default_value: Any,
        shared_name: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(initializer, default_value, name or shared_name)

    @property
    def init(self) -> Any:
        """The op that fills the table with the initializer's keys and values."""
        return self.initializer


class MutableHashTable(lookup_ops.MutableHashTable):
    """A lookup table into which ops can insert keys and values."""

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        shared_name: str | None = None,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:
        super().__init__(key_dtype, value_dtype, default_value, shared_name or name, checkpoint)


class MutableDenseHashTable(lookup_ops.DenseHashTable):
    """A lookup table that ops can change, and that stores its keys and values in dense tensors.

    Args:
      empty_key: a key that marks empty buckets; the table cannot contain the key.
      initial_num_buckets: initial number of buckets; None for TensorFlow's default.
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        shared_name: str | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
    ) -> None:
        super().__init__(
            key_dtype,
            value_dtype,
            default_value,
            empty_key,
            deleted_key,
            initial_num_buckets,
            shared_name or name,
            checkpoint,
        )


def index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: Any = FastHashSpec,
    dtype: Any = tf.string,
    name: str | None = None,
) -> Any:
    """Create a table that maps each key of a list to the key's index in the list.

    Args:
      num_oov_buckets: number of additional ids, n and higher, to which a hash function maps the
        keys that are not in the list.
      hasher_spec: the hash function, such as tf.contrib.lookup.FastHashSpec.
    """
    return lookup_ops.index_table_from_tensor(
        mapping, num_oov_buckets, default_value, hasher_spec, dtype, name
    )


def index_to_string_table_from_tensor(
    mapping: Any, default_value: str = "UNK", name: str | None = None
) -> Any:
    """Create a table that maps an int64 index to the string at that index of a list."""
    return lookup_ops.index_to_string_table_from_tensor(mapping, default_value, name)


def string_to_index(
    tensor: Any, mapping: Any, default_value: int = -1, name: str | None = None
) -> Any:
    """Return the index of each string of a tensor in a list of strings."""
    return index_table_from_tensor(mapping, 0, default_value, name=name).lookup(tensor)


def index_to_string(
    tensor: Any, mapping: Any, default_value: str = "UNK", name: str | None = None
) -> Any:
    """Replace each integer of a tensor by the string at that index of a list."""
    table = index_to_string_table_from_tensor(mapping, default_value, name)
    return table.lookup(tf.cast(tensor, tf.int64))


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.lookup", __all__)
