"""Converts features with ids of embedding table rows, and their weights, for lookups.

A TPU takes only dense tensors. So the ids are padded with -1 to the shape [batch size, k].
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.embedding.config import EmbeddingConfig, FeatureConfig, Table
from trainer.infeed.tensor_nest import PADDED_IDS, PADDED_WEIGHTS
from trainer.tensorflow_internals import feature_column_v2, get_private_attribute

_LENGTH_SUFFIX = "_seq_length_"
_MASK_SUFFIX = "__TENSOR_CORE_MASK"
_NO_ID = -1


def pad_features(features: Any, config: EmbeddingConfig) -> dict[str, Any]:
    """Pad the ids in the features of a batch to dense tensors, and add their weights.

    Args:
      features: name → tensor, SparseTensor or RaggedTensor, as input_fn returns them.

    Returns:
      The features. Each feature with ids is a dict of the ids, int32 [batch size, k], and of their
      weights, float32 [batch size, k].
    """
    padded = without_weights(features, config)
    for name, feature in config.features.items():
        ids = _find_feature(name, features)
        weights = (
            None if feature.weight_key is None else _find_feature(feature.weight_key, features)
        )
        table = config.table_of(name)
        padded[name] = _pad(name, ids, weights, table, feature)
    padded.update(sequence_lengths(features, config))
    for column in config.spec.tensor_core_feature_columns or ():
        name = column.get_feature_key_name()
        size = get_private_attribute(column, "_tensor_core_shape")[1]
        ids = _pad_to(_to_sparse(name, _find_feature(name, features)), size)
        padded[name] = tf.maximum(ids, 0)
        padded[f"{name}{_MASK_SUFFIX}"] = tf.cast(ids >= 0, tf.float32)
    return padded


def without_weights(features: Any, config: EmbeddingConfig) -> dict[str, Any]:
    """Return the features of a batch, except those that hold weights of ids."""
    if not isinstance(features, Mapping):
        raise InvalidType(
            f"features are {features!r:.100}, and embedding_config_spec names features. Return a "
            f"dict from input_fn: name of the feature → tensor."
        )
    weight_keys = {feature.weight_key for feature in config.features.values()}
    return {name: value for name, value in features.items() if name not in weight_keys}


def with_rows(padded: Mapping[str, Any], config: EmbeddingConfig, rows: int) -> dict[str, Any]:
    """Set the static batch size of tensors that `pad_features` has made; training needs this size.

    Args:
      padded: the features, as `pad_features` returns them.
      config: the tables and the names of the features that hold ids.
      rows: the batch size.
    """

    def set_rows(tensor: Any) -> Any:
        size, *sizes = tensor.shape.as_list()
        return tensor if size is not None else tf.ensure_shape(tensor, [rows, *sizes])

    added = {f"{name}{_LENGTH_SUFFIX}" for name in config.features}
    for column in config.spec.tensor_core_feature_columns or ():
        name = column.get_feature_key_name()
        added |= {name, f"{name}{_MASK_SUFFIX}"}
    return {
        name: tf.nest.map_structure(set_rows, value)
        if name in config.features or name in added
        else value
        for name, value in padded.items()
    }


def numbers_of_words(features: Any, config: EmbeddingConfig) -> Any:
    """Convert features of strings to ids, with the vocabularies of their feature columns.

    Only a model off the TPU can have such features, because a TPU takes no strings.
    """
    if not isinstance(features, Mapping):
        return features
    cache = feature_column_v2.FeatureTransformationCache(dict(features))
    return {
        name: _categorical_column(config.columns[name]).transform_feature(cache, None)
        if name in config.columns and feature.dtype == tf.string
        else feature
        for name, feature in features.items()
    }


def cut_sequences(features: Any, config: EmbeddingConfig) -> Any:
    """Return the features with each sparse sequence cut to max_sequence_length, as on a TPU."""
    if not isinstance(features, Mapping):
        return features
    cut = dict(features)
    for name, feature in config.features.items():
        if feature.max_sequence_length and isinstance(features.get(name), tf.SparseTensor):
            size = tf.stack([features[name].dense_shape[0], feature.max_sequence_length])
            cut[name] = tf.sparse.slice(features[name], [0, 0], size)
    return cut


def _categorical_column(column: Any) -> Any:
    categorical = column.categorical_column
    is_weighted = column.is_categorical_column_weighted()
    return categorical.categorical_column if is_weighted else categorical


def is_padded_for_core(features: Any) -> bool:
    """Return whether features contain dense ids that the model itself looks up.

    These ids belong to EmbeddingConfigSpec.tensor_core_feature_columns. `pad_features` adds a mask
    for each of them, by which this function recognises them.
    """
    return isinstance(features, Mapping) and any(
        str(name).endswith(_MASK_SUFFIX) for name in features
    )


def is_padded(feature: Any) -> bool:
    """Return whether a feature is a dict of dense ids and weights, made by `pad_features`."""
    return isinstance(feature, Mapping) and PADDED_IDS in feature


def _find_feature(name: str, features: Mapping[str, Any]) -> Any:
    if name not in features:
        raise InvalidSetting(
            f"embedding_config_spec has the feature {name!r}, and input_fn returned "
            f"{', '.join(map(repr, features))}. Give the feature, or leave it out of the spec."
        )
    return features[name]


def _pad(name: str, ids: Any, weights: Any, table: Table, feature: FeatureConfig) -> dict[str, Any]:
    ids, weights = _ids_and_weights(name, ids, weights, table, feature)
    if isinstance(ids, tf.SparseTensor):
        size = feature.max_sequence_length or None
        dense = _check_vocabulary(_pad_to(ids, size), name, table)
        padded_weights = None if weights is None else _pad_to(weights, size, 0.0)
    else:
        dense, padded_weights = _check_vocabulary(ids, name, table), None
    if padded_weights is None:
        weights = tf.cast(dense >= 0, tf.float32)
    else:
        weights = tf.where(dense >= 0, padded_weights, 0.0)
    combined = () if feature.max_sequence_length else (1,)
    return {PADDED_IDS: dense, PADDED_WEIGHTS: _normalize(weights, table.config.combiner, combined)}


def sparse_ids(
    name: str, features: Mapping[str, Any], config: EmbeddingConfig
) -> tuple[tf.SparseTensor, tf.SparseTensor | None]:
    """Return the ids of a feature and their weights as SparseTensors, without negative ids.

    Returns:
      (the ids, int32 [batch size, any], or [batch size, max_sequence_length] for a sequence
      feature, which is cut to this length; the weights, float32, at the same indices, or None for
      equal weights).
    """
    feature, table = config.features[name], config.table_of(name)
    row_weights = (
        None if feature.weight_key is None else _find_feature(feature.weight_key, features)
    )
    ids, weights = _ids_and_weights(
        name, _find_feature(name, features), row_weights, table, feature
    )
    if not isinstance(ids, tf.SparseTensor):
        indices = tf.where(ids >= 0)
        ids = tf.SparseTensor(indices, tf.gather_nd(ids, indices), tf.shape(ids, tf.int64))
    values = _check_vocabulary(_to_int32(ids.values), name, table)
    is_kept, shape = values >= 0, ids.dense_shape
    if feature.max_sequence_length:
        is_kept &= ids.indices[:, 1] < feature.max_sequence_length
        shape = tf.stack([shape[0], feature.max_sequence_length])
    indices = tf.boolean_mask(ids.indices, is_kept)
    sparse = tf.SparseTensor(indices, tf.boolean_mask(values, is_kept), shape)
    if weights is None:
        return sparse, None
    return sparse, tf.SparseTensor(indices, tf.boolean_mask(weights.values, is_kept), shape)


def sequence_lengths(features: Mapping[str, Any], config: EmbeddingConfig) -> dict[str, Any]:
    """Return the lengths of the sequences of each sequence feature.

    Returns:
      Name of a sequence feature, followed by a suffix → the lengths of its sequences, int32 [batch
      size].
    """
    return {
        f"{name}{_LENGTH_SUFFIX}": _sequence_lengths(features[name], feature.max_sequence_length)
        for name, feature in config.features.items()
        if feature.max_sequence_length
    }


def _ids_and_weights(
    name: str, ids: Any, weights: Any, table: Table, feature: FeatureConfig
) -> tuple[Any, Any]:
    """Check the types and shapes of the ids and the weights of a feature, and convert them."""
    is_dense = tf.is_tensor(ids) and not isinstance(ids, tf.SparseTensor | tf.RaggedTensor)
    if is_dense and weights is not None:
        raise InvalidType(
            f"feature {name!r} is dense, and has the weights {feature.weight_key!r}. Give both as "
            f"SparseTensors."
        )
    if weights is not None and not isinstance(weights, tf.SparseTensor | tf.RaggedTensor):
        raise InvalidType(
            f"the weights {feature.weight_key!r} of feature {name!r} are dense. Dense weights are "
            f"not supported on TPU. Give them as a SparseTensor, like the ids."
        )
    if table.config.combiner is None and not is_dense and not feature.max_sequence_length:
        raise InvalidType(
            f"feature {name!r} is {type(ids).__name__}, and the combiner of table {table.name!r} "
            f"is None. Give one id for each example, as a dense tensor [rows], or a combiner."
        )
    if is_dense and not feature.max_sequence_length:
        dense = _dense_ids(name, ids)
        if table.config.combiner is None and dense.shape.as_list()[1] != 1:
            raise InvalidType(
                f"feature {name!r} has {dense.shape[1]} ids for each example, and the combiner of "
                f"table {table.name!r} is None. Give one id for each example, or a combiner."
            )
        return dense, None
    sparse = _to_sparse(name, ids)
    if weights is None:
        return sparse, None
    sparse_weights = _to_sparse(feature.weight_key, weights)
    check = tf.debugging.assert_equal(
        sparse_weights.indices,
        sparse.indices,
        f"the weights {feature.weight_key!r} have other positions than the ids {name!r}. "
        f"Give one weight for each id",
    )
    with tf.control_dependencies([check]):
        values = tf.cast(tf.identity(sparse_weights.values), tf.float32)
    return sparse, sparse_weights.with_values(values)


def _normalize(weights: Any, combiner: str | None, axes: tuple[int, ...]) -> Any:
    """Normalise weights so that a weighted sum of rows is what the combiner computes."""
    if combiner == "mean":
        total = tf.reduce_sum(weights, axes, keepdims=True)
    elif combiner == "sqrtn":
        total = tf.sqrt(tf.reduce_sum(weights * weights, axes, keepdims=True))
    else:
        return weights
    return tf.math.divide_no_nan(weights, total)


def _dense_ids(name: str, ids: Any) -> Any:
    _check_integers(name, ids)
    if ids.shape.rank == 1:
        ids = ids[:, tf.newaxis]
    if ids.shape.rank != 2:
        raise InvalidType(
            f"feature {name!r} has the shape {ids.shape}. Dense ids have the shape [rows] or "
            f"[rows, ids]."
        )
    return _to_int32(ids)


def _to_sparse(name: str | None, feature: Any) -> Any:
    """Convert a feature to a SparseTensor of rank 2."""
    _check_integers(name, feature, or_floats=True)
    if isinstance(feature, tf.RaggedTensor):
        feature = feature.to_sparse()
    elif not isinstance(feature, tf.SparseTensor):
        dense = feature[:, tf.newaxis] if feature.shape.rank == 1 else feature
        feature = tf.sparse.from_dense(tf.cast(dense, tf.int64) + 1)
        feature = feature.with_values(feature.values - 1)
    if feature.shape.rank != 2:
        raise InvalidType(
            f"feature {name!r} has the shape {feature.shape}. Sparse ids have the shape "
            f"[rows, ids]."
        )
    return feature


def _check_integers(name: str | None, feature: Any, *, or_floats: bool = False) -> None:
    dtype = feature.dtype
    if dtype.is_integer or (or_floats and dtype.is_floating):
        return
    raise InvalidType(
        f"feature {name!r} has the type {dtype.name}, and ids are whole numbers: SparseTensor with "
        f"string as values are not supported on a TPU. Convert them in input_fn, for example with "
        f"tf.strings.to_hash_bucket_fast or a lookup table."
    )


def _pad_to(sparse: Any, size: int | None, filler: Any = _NO_ID) -> Any:
    """Convert a SparseTensor to a dense tensor."""
    values = _to_int32(sparse.values) if sparse.dtype.is_integer else sparse.values
    filler = tf.cast(filler, values.dtype)
    rows = sparse.dense_shape[0]
    if size is not None:
        is_kept = sparse.indices[:, 1] < size
        indices = tf.boolean_mask(sparse.indices, is_kept)
        empty = tf.fill(tf.stack([rows, size]), filler)
        dense = tf.tensor_scatter_nd_update(empty, indices, tf.boolean_mask(values, is_kept))
        dense.set_shape([sparse.shape[0], size])
        return dense
    ragged = tf.RaggedTensor.from_value_rowids(
        values, sparse.indices[:, 0], nrows=rows, validate=False
    )
    longest = tf.reduce_max(tf.concat([ragged.row_lengths(), [1]], 0))
    powers = tf.constant([2**power for power in range(31)], tf.int64)
    columns = tf.gather(powers, tf.searchsorted(powers, [longest]))[0]
    dense = ragged.to_tensor(filler, shape=tf.stack([rows, columns]))
    dense.set_shape([sparse.shape[0], None])
    return dense


def _sequence_lengths(feature: Any, limit: int) -> Any:
    sparse = _to_sparse("", feature)
    rows, columns = sparse.indices[:, 0], sparse.indices[:, 1]
    lengths = tf.math.unsorted_segment_max(columns + 1, rows, sparse.dense_shape[0])
    lengths = tf.cast(tf.clip_by_value(lengths, 0, limit), tf.int32)
    lengths.set_shape([sparse.shape[0]])
    return lengths


def _check_vocabulary(ids: Any, name: str, table: Table) -> Any:
    rows = table.config.vocabulary_size
    check = tf.debugging.assert_less(
        ids,
        rows,
        f"feature {name!r} has an id that table {table.name!r} does not have: its rows are 0 to "
        f"{rows - 1}. Raise vocabulary_size, or give smaller ids",
    )
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(ids)


def _to_int32(ids: Any) -> Any:
    # Convert ids that do not fit into 32 bits to the largest int32, which is too large for every
    # table. So the check of ids against the vocabulary size reports them.
    return (
        tf.cast(tf.clip_by_value(ids, _NO_ID, 2**31 - 1), tf.int32)
        if (ids.dtype == tf.int64)
        else tf.cast(ids, tf.int32)
    )
