"""Looks ids up with tf.nn.embedding_lookup_sparse, in exports of models with embedding tables.

This module is used if EmbeddingConfigSpec.table_to_config_dict describes the tables. If feature
columns describe the tables, the columns themselves look ids up.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.embedding import ids
from trainer.embedding.config import EmbeddingConfig
from trainer.embedding.tables import create_table_variable


def look_up(features: Any, config: EmbeddingConfig) -> dict[str, Any]:
    """Return the features of a batch with rows of the tables in place of ids.

    Args:
      features: name → tensor, SparseTensor or RaggedTensor.
    """
    return {**ids.without_weights(features, config), **look_up_ids(features, config)}


def look_up_ids(features: Mapping[str, Any], config: EmbeddingConfig) -> dict[str, Any]:
    """Look up the ids of a batch; return only the features that have ids.

    Args:
      features: name → tensor, SparseTensor or RaggedTensor.

    Returns:
      Name of a feature → the combined rows, float32 [batch size, dimension].
    """
    activations: dict[str, Any] = {}
    for table in config.tables:
        variable = create_table_variable(table, table.name)
        for name in table.features:
            sparse, weights = ids.sparse_ids(name, features, config)
            length = config.features[name].max_sequence_length
            if length:
                sparse = _flatten_to_single_ids(sparse)
                weights = None if weights is None else _flatten_to_single_ids(weights)
            rows = _combine(variable, sparse, weights, table.config.combiner or "sum")
            if length:
                rows = tf.reshape(rows, [-1, length, table.config.dimension])
            activations[name] = tf.ensure_shape(rows, [features[name].shape[0], *rows.shape[1:]])
    return {**activations, **ids.sequence_lengths(features, config)}


def _flatten_to_single_ids(sparse: Any) -> Any:
    """Reshape a SparseTensor [batch size, k] to [batch size * k, 1]."""
    return tf.sparse.reshape(sparse, tf.stack([tf.reduce_prod(sparse.dense_shape), 1]))


def _combine(variable: Any, sparse: Any, weights: Any, combiner: str) -> Any:
    """Return the combined rows for the ids of each example; zeros for an example without ids."""
    # Give examples without ids the id 0, and set their rows to zero afterwards. Otherwise the
    # result of embedding_lookup_sparse would lack such examples at the end of the batch.
    filled, is_empty = tf.sparse.fill_empty_rows(sparse, 0)
    if weights is not None:
        weights, _ = tf.sparse.fill_empty_rows(weights, 1.0)
    rows = tf.nn.embedding_lookup_sparse(variable, filled, weights, combiner=combiner)
    return tf.where(is_empty[:, tf.newaxis], tf.zeros([]), rows)
