"""Wraps a model_fn so that it receives rows of embedding tables in place of ids."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainer.embedding import ids
from trainer.embedding.config import EmbeddingConfig, EmbeddingConfigSpec, build_config
from trainer.embedding.tables import StepTables, create_table_variable
from trainer.inputs.input_pipeline import split_features_and_labels
from trainer.model.spec import ModeKeys
from trainer.tensorflow_internals import tpu, tpu_function

logger = logging.getLogger("tensorflow.trainer")
_ANCHOR = "embedding_gradient_anchor"


class GradientCapture:
    """Records the gradients of some tensors when model_fn's optimizer computes gradients.

    An optimizer computes gradients with respect to the trainable variables, and the embedding
    tables are not trainable variables.
    """

    def __init__(self) -> None:
        with tf.init_scope():
            self._anchor = tf.compat.v1.Variable(
                [0.0],
                trainable=True,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                use_resource=True,
                name=_ANCHOR,
            )
        self._gradients: dict[str, Any] = {}

    def watch(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of each tensor; the gradients of the copies are recorded.

        The model must use the copies in place of the tensors.
        """
        anchor = self._anchor.read_value()
        return {name: self._watch(name, tensor, anchor) for name, tensor in tensors.items()}

    def _watch(self, name: str, tensor: Any, anchor: Any) -> Any:
        @tf.custom_gradient
        def identity(tensor: Any, anchor: Any) -> tuple[Any, Any]:
            def record(gradient: Any) -> tuple[Any, Any]:
                # If model_fn computes gradients several times, overwrite the earlier gradients.
                self._gradients[name] = gradient
                return tf.zeros_like(tensor), self._anchor_gradient(anchor)

            return tf.identity(tensor), record

        return identity(tensor, anchor)

    def _anchor_gradient(self, anchor: Any) -> Any:
        # If the anchor is the only trainable variable, give it the gradient 0. Optimizers raise an
        # error if no variable has a gradient.
        others = [
            variable
            for variable in tf.compat.v1.trainable_variables()
            if variable is not self._anchor
        ]
        return None if others else tf.zeros_like(anchor)

    def gradients(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recorded gradients of tensors, by name; zeros for a tensor without gradient.

        A tensor has no gradient if the loss does not depend on it.
        """
        unused = [name for name in tensors if name not in self._gradients]
        if unused:
            logger.warning(
                "the loss does not depend on the embeddings of %s, or model_fn computes no "
                "gradients: their gradients are 0",
                ", ".join(map(repr, unused)),
            )
        return {
            name: tf.convert_to_tensor(self._gradients[name])
            if name in self._gradients
            else tf.zeros_like(tensor)
            for name, tensor in tensors.items()
        }


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


class EmbeddingModel:
    """Calls model_fn with features in which rows of embedding tables replace ids.

    In a step on a TPU, features[name] is float32 [batch size, dimension]: the rows of an example's
    ids, combined. These values are called activations.

    In an export, tf.nn.embedding_lookup_sparse looks ids up.
    """

    def __init__(self, spec: EmbeddingConfigSpec) -> None:
        self._spec = spec

    def encode_input(self, returned: Any, batch_size: int, mode: str) -> Any:
        """Convert the ids that an input_fn returned to dense tensors, for a TPU."""
        config = build_config(self._spec)

        def encode(batch: Any) -> Any:
            features, labels = split_features_and_labels(batch)
            padded = ids.pad_features(features, config)
            if mode == ModeKeys.TRAIN:
                padded = ids.with_rows(padded, config, batch_size)
            return padded if labels is None else (padded, labels)

        if not isinstance(returned, tf.data.Dataset):
            return encode(returned)
        is_tuple = type(returned.element_spec) is tuple

        def encode_element(*parts: Any) -> Any:
            return encode(parts if is_tuple else parts[0])

        return returned.map(tf.autograph.experimental.do_not_convert(encode_element))

    def call(
        self, model_fn: Callable[[Any], Any], features: Any, mode: str, is_export: bool
    ) -> Any:
        """Call a model_fn with rows of the tables in place of ids; return its EstimatorSpec."""
        replicas = tpu_function.get_tpu_context().number_of_shards
        if isinstance(features, Mapping) and any(map(ids.is_padded, features.values())):
            config = build_config(self._spec)
            return _call_with_activations(
                model_fn, features, mode, config, replicas=replicas or 1, on_tpu=True
            )
        config = build_config(self._spec, only_table_columns=True)
        if not config.tables and (replicas is None or ids.is_padded_for_core(features)):
            # Call model_fn with unchanged features, because the model itself looks up all ids: all
            # columns are tensor_core_feature_columns or ordinary feature columns.
            return model_fn(features)
        if replicas is not None:
            if config.columns or not config.tables:
                return _call_for_inference(model_fn, _cut_on_host(features, config))
            return _call_with_activations_of_host(model_fn, features, config)
        if is_export and mode != ModeKeys.TRAIN:
            if config.columns:
                return model_fn(ids.cut_sequences(features, config))
            return model_fn(look_up(features, config))
        if config.columns and mode != ModeKeys.TRAIN and isinstance(features, Mapping):
            # Off the TPU, accept that features are missing in an evaluation or prediction, as
            # feature columns do.
            config = config.select(features)
        features = ids.pad_features(ids.numbers_of_words(features, config), config)
        if self._spec.table_to_config_dict is not None:
            return _call_with_activations(model_fn, features, mode, config)
        # Enter TensorFlow's TPU shard context. There, TPU feature columns expect activations in the
        # features, and not ids.
        with tpu_function.tpu_shard_context(1):
            return _call_with_activations(model_fn, features, mode, config)


def _call_with_activations(
    model_fn: Callable[[Any], Any],
    features: Any,
    mode: str,
    config: EmbeddingConfig,
    *,
    replicas: int = 1,
    on_tpu: bool = False,
) -> Any:
    is_pipelined = on_tpu and config.spec.pipeline_execution_with_tensor_core
    tables = StepTables(config, replicas, is_pipelined=is_pipelined)
    activations = tables.look_up(features)
    # Create the GradientCapture in every mode, although only TRAIN needs gradients.
    capture = GradientCapture()
    watched = capture.watch(activations)
    # Read the global step, on which learning rates can depend, before train_op changes it. In a
    # step on a TPU, no control dependency is needed, because reads of variables come before writes.
    step = tf.identity(tf.compat.v1.train.get_or_create_global_step().read_value())
    with tf.control_dependencies([] if on_tpu else [step]):
        spec = model_fn({**features, **watched})
    tables.create_column_variables(must_use_all=on_tpu or mode == ModeKeys.TRAIN)
    if mode != ModeKeys.TRAIN:
        return spec
    updates = tables.update(activations, capture.gradients(watched), step)
    return spec._replace(train_op=tf.group(spec.train_op, *updates))


def _call_for_inference(model_fn: Callable[[Any], Any], features: Any) -> Any:
    """Call model_fn with features that hold ids, inside the TPU computation of an export."""
    graph = tf.compat.v1.get_default_graph()
    inference = tpu._TPUInferenceContext(graph.unique_name("inference"), check_ops=False)
    tpu_context = tpu_function.get_tpu_context()
    shards = tpu_context.number_of_shards
    inference.Enter()
    # Unset the number of replicas ("shards") in TensorFlow's global TPU context, as if the graph
    # were not for a TPU. Otherwise feature columns do not create their variables.
    tpu_context.set_number_of_shards(None)
    try:
        return model_fn(features)
    finally:
        tpu_context.set_number_of_shards(shards)
        inference.Exit()


def _cut_on_host(features: Any, config: EmbeddingConfig) -> Any:
    """Cut sequences to max_sequence_length on the host, in the TPU computation of an export."""
    if not isinstance(features, Mapping):
        return features
    sequences = {
        name: features[name]
        for name, feature in config.features.items()
        if feature.max_sequence_length and isinstance(features.get(name), tf.SparseTensor)
    }
    if not sequences:
        return features
    parts = tf.compat.v1.tpu.outside_compilation(
        lambda: [
            (sparse.indices, sparse.values, sparse.dense_shape)
            for sparse in ids.cut_sequences(sequences, config).values()
        ]
    )
    cut = [tf.SparseTensor(*components) for components in parts]
    return {**features, **dict(zip(sequences, cut, strict=True))}


def _call_with_activations_of_host(
    model_fn: Callable[[Any], Any], features: Any, config: EmbeddingConfig
) -> Any:
    """Call model_fn in the TPU computation of an export, after the host has looked the ids up."""
    others = ids.without_weights(features, config)
    looked_up = tf.compat.v1.tpu.outside_compilation(lambda: look_up_ids(features, config))
    return model_fn({**others, **looked_up})
