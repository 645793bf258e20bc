"""Copies the lookup tables of a Keras model into the graph of a run."""

from typing import Any

import tensorflow as tf

from trainer.keras.model.tracing import eager_mode
from trainer.tensorflow_internals import get_private_attribute


def copy_table(model: Any, handle: Any) -> Any:
    """Return the handle of a new table in the default graph; None if the model lacks the table."""
    kinds = (tf.lookup.StaticHashTable, tf.lookup.experimental.MutableHashTable)
    parts = tf.train.TrackableView(model).descendants()
    tables = [part for part in parts if isinstance(part, kinds) and part.resource_handle is handle]
    if not tables:
        return None
    keys, values = _export(tables[0])
    # In the graph of a loop's body, create the table outside of the loop.
    with tf.init_scope():
        contents = tf.lookup.KeyValueTensorInitializer(keys, values)
        default = tf.zeros([], contents.value_dtype)
        return tf.lookup.StaticHashTable(contents, default).resource_handle


def _export(table: Any) -> tuple[Any, Any]:
    """Return the keys and the values of a table, as arrays."""
    # Use a graph that is discarded, because a table adds its initializer to the graph's collection.
    with tf.Graph().as_default(), eager_mode():
        if isinstance(table, tf.lookup.StaticHashTable):
            # Initialize the table: a layer that created it while it was traced has not done so.
            get_private_attribute(table, "_initialize")()
            keys, values = tf.raw_ops.LookupTableExportV2(
                table_handle=table.resource_handle,
                Tkeys=table.key_dtype,
                Tvalues=table.value_dtype,
            )
        else:
            keys, values = table.export()
        return keys.numpy(), values.numpy()
