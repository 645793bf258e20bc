"""Fully connected layers, layers for biases and dropout, and other layers without variables."""

import functools
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.initializers import xavier_initializer
from trainer.compat.contrib.layers.layer_builder import (
    add_to_outputs_collections,
    layer_scope,
    static_channels,
    static_shape,
)

v1 = tf.compat.v1


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008
    weights_regularizer: Any = None,
    biases_initializer: Any = v1.zeros_initializer(),  # noqa: B008
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Multiply the last dimension by a matrix of weights, then add biases or normalize.

    Args:
      inputs: float [..., n], of rank 2 or more.
      activation_fn: function to apply to the outputs, such as tf.nn.relu; None for none.
      normalizer_fn: function, such as `batch_norm`, to apply to the outputs instead of adding
        biases; None to add biases.
      variables_collections: a list of collections for all variables, or a dict of variable name →
        list of collections.

    Raises:
      InvalidSetting: inputs have a rank below 2, or a last dimension of unknown size.
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank or 0
    size = static_shape(inputs)[-1] if rank else None
    if not size or rank < 2:
        raise InvalidSetting(
            f"fully_connected got inputs of shape {inputs.shape}. Pass at least two dimensions, "
            f"the last of a known size."
        )
    collections = variables_collections, outputs_collections
    with layer_scope(scope, "fully_connected", inputs, reuse, trainable, *collections) as layer:
        weights = layer.variable(
            "weights", [size, num_outputs], weights_initializer, weights_regularizer
        )
        outputs = (
            tf.matmul(inputs, weights)
            if rank == 2
            else tf.tensordot(inputs, weights, [[rank - 1], [0]])
        )
        outputs.set_shape([*static_shape(inputs)[:-1], num_outputs])
        outputs = layer.normalize_or_add_bias(
            outputs, normalizer_fn, normalizer_params, biases_initializer, biases_regularizer
        )
        return layer.finish(outputs, activation_fn)


linear = functools.partial(fully_connected, activation_fn=None)
relu = functools.partial(fully_connected, activation_fn=tf.nn.relu)
elu = functools.partial(fully_connected, activation_fn=tf.nn.elu)
relu6 = functools.partial(fully_connected, activation_fn=tf.nn.relu6)


@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Any = None,
    initializer: Any = v1.zeros_initializer(),  # noqa: B008
    regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Add the variable "biases" to the inputs, one number per channel.

    Args:
      inputs: float [b, ..., c]; [b, c, ...] with data_format "NCHW".
    """
    inputs = tf.convert_to_tensor(inputs)
    collections = variables_collections, outputs_collections
    with layer_scope(scope, "BiasAdd", inputs, reuse, trainable, *collections) as layer:
        channels = static_channels(inputs, 1 if data_format == "NCHW" else -1)
        biases = layer.variable("biases", [channels], initializer, regularizer)
        return layer.finish(tf.nn.bias_add(inputs, biases, data_format=data_format), activation_fn)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """Reshape [b, ...] to [b, n], n being the product of the other dimensions."""
    with v1.name_scope(scope, "Flatten", [inputs]) as name:
        inputs = tf.convert_to_tensor(inputs)
        if not inputs.shape.rank:
            raise InvalidSetting(f"flatten got inputs of shape {inputs.shape}. Pass [batch, ...].")
        size = inputs.shape[1:].num_elements()
        batch = static_shape(inputs)[0]
        if size is None:
            shape = [tf.shape(inputs)[0], tf.reduce_prod(tf.shape(inputs)[1:])]
        else:
            shape = [-1 if batch is None or not size else batch, size]
        outputs = tf.reshape(inputs, shape)
        outputs.set_shape([batch, size])
        return add_to_outputs_collections(outputs_collections, name, outputs)


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> Any:
    """In training, set random elements to 0 and scale up the others, which keeps the expected sum.

    Args:
      noise_shape: shape of the random decisions; elements along a dimension of size 1 are kept or
        dropped together.
      scope: see `fully_connected`; the default scope is "Dropout".
    """
    with v1.variable_scope(scope, "Dropout", [inputs]) as dropout_scope:
        inputs = tf.convert_to_tensor(inputs)

        def drop() -> Any:
            return v1.nn.dropout(inputs, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed)

        if isinstance(is_training, tf.Tensor) and tf.get_static_value(is_training) is None:
            outputs = tf.cond(is_training, drop, lambda: tf.identity(inputs))
        else:
            is_training = tf.get_static_value(is_training)
            outputs = drop() if is_training else tf.identity(inputs)
        return add_to_outputs_collections(outputs_collections, dropout_scope.name, outputs)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Encode labels as one-hot vectors.

    Args:
      scope: see `fully_connected`; the default scope is "OneHotEncoding".
    """
    with v1.name_scope(scope, "OneHotEncoding", [labels]) as name:
        labels = tf.cast(labels, tf.int64)
        outputs = tf.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return add_to_outputs_collections(outputs_collections, name, outputs)


@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Any:
    """Return the softmax over the last dimension."""
    with v1.variable_scope(scope, "softmax", [logits]):
        return tf.nn.softmax(logits)


@add_arg_scope
def maxout(inputs: Any, num_units: int, axis: int = -1, scope: Any = None) -> Any:
    """Reduce a dimension to num_units elements, each the maximum of a group of neighbours.

    Source: Goodfellow et al., "Maxout Networks", 2013.

    Args:
      scope: variable scope; "MaxOut" by default.
    """
    with v1.variable_scope(scope, "MaxOut", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        sizes = static_shape(inputs)
        axis %= len(sizes)
        size = sizes[axis]
        if size is None or size % num_units:
            raise InvalidSetting(
                f"maxout got inputs of shape {inputs.shape} and num_units={num_units}. The size of "
                f"dimension {axis} must be known and a multiple of num_units."
            )
        shape = tf.shape(inputs)
        split = [num_units, size // num_units]
        grouped = tf.reshape(inputs, tf.concat([shape[:axis], split, shape[axis + 1 :]], 0))
        outputs = tf.reduce_max(grouped, axis=axis + 1)
        outputs.set_shape([*sizes[:axis], num_units, *sizes[axis + 1 :]])
        return outputs


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Any:
    """Scale the inputs to a Euclidean norm of 1 along a dimension."""
    with v1.variable_scope(scope, "UnitNorm", [inputs]):
        squares = tf.reduce_sum(tf.square(inputs), axis=dim, keepdims=True)
        return tf.divide(inputs, tf.sqrt(squares + epsilon))
