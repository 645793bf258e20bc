"""Builds and calls functions that compute logits from features, as parts of a model_fn."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting
from trainer import keras_internals
from trainer.model.model_program import expected_argument_names
from trainer.model.spec import ModeKeys

v1 = tf.compat.v1


def call_logit_fn(
    logit_fn: Callable[..., Any], features: Any, mode: str, params: Any, config: Any
) -> Any:
    """Call a logit_fn; return its logits: a tensor, or a dict of tensors for several heads.

    Args:
      logit_fn: takes features, and any of mode, params and config by name.
      features: the features that model_fn received.
      params: the hyperparameters that model_fn received.
      config: the RunConfig that model_fn received.

    Raises:
      InvalidSetting: logit_fn returned neither a tensor nor a dict of tensors.
    """
    available = {"mode": mode, "params": params, "config": config}
    names = expected_argument_names(logit_fn)
    logits = logit_fn(
        features=features,
        **{name: value for name, value in available.items() if name in names},
    )
    parts = list(logits.values()) if isinstance(logits, dict) else [logits]
    if not all(tf.is_tensor(part) for part in parts):
        raise InvalidSetting(
            f"logit_fn should return a Tensor or a dictionary mapping strings to Tensors; it "
            f"returned {logits!r}."
        )
    return logits


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Sequence[int],
    feature_columns: Sequence[Any],
    activation_fn: Callable[[Any], Any],
    dropout: float | None,
    input_layer_partitioner: Any,
    batch_norm: bool,
) -> Callable[[Any, str], Any]:
    """Build a feed-forward network: a function of features and mode that returns logits.

    The logits have shape [batch, units].

    Args:
      feature_columns: the feature columns that the first layer reads.
      dropout: fraction of the activations that training drops; None for no dropout.
      input_layer_partitioner: partitions the variables of the first layer; None for no partition.
      batch_norm: whether each hidden layer is followed by batch normalisation.

    Raises:
      InvalidSetting: units is less than 1.
      InvalidType: units is not a whole number.
    """
    validation.check_integer("units", units, least=1)

    def dnn_logit_fn(features: Any, mode: str) -> Any:
        is_training = mode == ModeKeys.TRAIN
        with v1.variable_scope("input_from_feature_columns", partitioner=input_layer_partitioner):
            net = _input_layer(features, list(feature_columns))
        for index, size in enumerate(hidden_units):
            net = _dense(net, size, activation_fn, f"hiddenlayer_{index}")
            if dropout is not None and is_training:
                net = tf.nn.dropout(net, rate=dropout)
            if batch_norm:
                net = v1.layers.batch_normalization(
                    net,
                    momentum=0.999,
                    training=is_training,
                    name=f"hiddenlayer_{index}/batchnorm_{index}",
                )
        return _dense(net, units, None, "logits")

    return dnn_logit_fn


def linear_logit_fn_builder(
    units: int, feature_columns: Sequence[Any], sparse_combiner: str = "sum"
) -> Callable[[Any], Any]:
    """Build a linear model: a function of features that returns logits [batch, units].

    Args:
      sparse_combiner: how to combine several values of a column in one example: "sum", "mean" or
        "sqrtn".

    Raises:
      InvalidSetting: units is less than 1.
      InvalidType: units is not a whole number.
    """
    validation.check_integer("units", units, least=1)

    def linear_logit_fn(features: Any) -> Any:
        return v1.feature_column.linear_model(
            features, list(feature_columns), units=units, sparse_combiner=sparse_combiner
        )

    return linear_logit_fn


def _input_layer(features: Any, feature_columns: list[Any]) -> Any:
    """Build the input of a network: the values of its columns, concatenated: [batch, size]."""
    if any(hasattr(column, "shared_embedding_column_creator") for column in feature_columns):
        # input_layer does not support the columns of tf.feature_column.shared_embeddings.
        return keras_internals.DenseFeatures(feature_columns, name="input_layer")(features)
    return v1.feature_column.input_layer(features, feature_columns)


def _dense(net: Any, size: int, activation: Any, name: str) -> Any:
    return v1.layers.dense(
        net,
        size,
        activation=activation,
        kernel_initializer=v1.glorot_uniform_initializer(),
        name=name,
    )
