"""tf.contrib.lookup: TensorFlow's own tables, with the arguments they had there."""

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

from trainer.compat.contrib_names import missing_names

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
    """A table that is filled once.

    It is started by tf.compat.v1.tables_initializer, which the trainer runs.
    """

    def __init__(
        self,
        initializer: Any,
        default_value: Any,
        shared_name: str | None = None,
        name: str | None = None,
    ) -> None:
        """Fills it when tables are started.

        Args:
          initializer: says the keys and values.
          default_value: of keys that are not there.
          shared_name: not needed: the table is the graph's.
          name: of the op.
        """
        super().__init__(initializer, default_value, name or shared_name)

    @property
    def init(self) -> Any:
        """The op that fills it."""
        return self.initializer


class MutableHashTable(lookup_ops.MutableHashTable):
    """A table that ops insert into."""

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        shared_name: str | None = None,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:
        """An empty one; the arguments are those of TensorFlow's, and shared_name its name."""
        super().__init__(key_dtype, value_dtype, default_value, shared_name or name, checkpoint)


class MutableDenseHashTable(lookup_ops.DenseHashTable):
    """A table that ops insert into, in a tensor of its own."""

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
        """An empty one; the arguments are those of TensorFlow's, and shared_name its name."""
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
    """A table of the place of each key in a list.

    Args:
      mapping: keys, [n].
      num_oov_buckets: numbers after n for other keys, by their hash.
      default_value: of other keys, where there are no buckets.
      hasher_spec: how they are hashed.
      dtype: of the keys.
      name: of the ops.
    """
    return lookup_ops.index_table_from_tensor(
        mapping, num_oov_buckets, default_value, hasher_spec, dtype, name
    )


def index_to_string_table_from_tensor(
    mapping: Any, default_value: str = "UNK", name: str | None = None
) -> Any:
    """A table of the strings of a list by their places."""
    return lookup_ops.index_to_string_table_from_tensor(mapping, default_value, name)


def string_to_index(
    tensor: Any, mapping: Any, default_value: int = -1, name: str | None = None
) -> Any:
    """The places of strings in a list."""
    return index_table_from_tensor(mapping, 0, default_value, name=name).lookup(tensor)


def index_to_string(
    tensor: Any, mapping: Any, default_value: str = "UNK", name: str | None = None
) -> Any:
    """The strings at places of a list."""
    table = index_to_string_table_from_tensor(mapping, default_value, name)
    return table.lookup(tf.cast(tensor, tf.int64))


__getattr__ = missing_names.getattr_for("tf.contrib.lookup", __all__)
