"""Lookups with tf.nn.embedding_lookup_sparse, in exports of models whose tables dicts describe."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.embedding import ids
from trainer.embedding.config import EmbeddingConfig
from trainer.embedding.tables import create_table_variable


def look_up(features: Any, config: EmbeddingConfig) -> dict[str, Any]:
    """Return the features of a batch with activations in place of the ids.

    Args:
      features: the features, as for `ids.pad_features`.
      config: the tables, which dicts describe; their variables are created.

    Raises:
      InvalidType: the features are not a dict, or a feature has a type that cannot hold ids.
      InvalidSetting: a feature is missing.
    """
    return {**ids.without_weights(features, config), **look_up_ids(features, config)}


def look_up_ids(features: Mapping[str, Any], config: EmbeddingConfig) -> dict[str, Any]:
    """Return the activations of the features with ids, and the lengths of sequences.

    Args:
      features: the features of a batch, as for `ids.pad_features`.
      config: the tables; see `look_up`.

    Returns:
      Name of a feature → float32 [rows, dimension], or [rows, max_sequence_length, dimension] for
      a sequence; name of a sequence's lengths → int32 [rows].
    """
    activations: dict[str, Any] = {}
    for table in config.tables:
        variable = create_table_variable(table, table.name)
        for name in table.features:
            sparse, weights = ids.sparse_ids(name, features, config)
            length = config.features[name].max_sequence_length
            if length:
                sparse = _one_id_for_each_row(sparse)
                weights = None if weights is None else _one_id_for_each_row(weights)
            rows = _combine(variable, sparse, weights, table.config.combiner or "sum")
            if length:
                rows = tf.reshape(rows, [-1, length, table.config.dimension])
            activations[name] = tf.ensure_shape(rows, [features[name].shape[0], *rows.shape[1:]])
    return {**activations, **ids.sequence_lengths(features, config)}


def _one_id_for_each_row(sparse: Any) -> Any:
    """Return a SparseTensor [rows, k] as one [rows * k, 1]."""
    return tf.sparse.reshape(sparse, tf.stack([tf.reduce_prod(sparse.dense_shape), 1]))


def _combine(variable: Any, sparse: Any, weights: Any, combiner: str) -> Any:
    """Return the combined rows of the ids of each example; zeros for an example without ids."""
    # embedding_lookup_sparse leaves out examples without ids at the end of the batch.
    filled, is_empty = tf.sparse.fill_empty_rows(sparse, 0)
    if weights is not None:
        weights, _ = tf.sparse.fill_empty_rows(weights, 1.0)
    rows = tf.nn.embedding_lookup_sparse(variable, filled, weights, combiner=combiner)
    return tf.where(is_empty[:, tf.newaxis], tf.zeros([]), rows)
