"""Layers of units, and of the shapes around them."""

import functools
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.initializers import xavier_initializer
from trainer.compat.contrib.layers.layer_builder import (
    LayerBuilder,
    add_to_outputs_collections,
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
    """Units that see all of the last dimension.

    Args:
      inputs: [..., n].
      num_outputs: units.
      activation_fn: of the result; None for none.
      normalizer_fn, normalizer_params: a function in place of biases, and its arguments.
      weights_initializer, weights_regularizer: of "weights", [n, num_outputs].
      biases_initializer, biases_regularizer: of "biases", [num_outputs]; no initializer, no biases.
      reuse, scope: of the variables; "fully_connected" by default.
      variables_collections, outputs_collections: collections that they and the result go to.
      trainable: whether the variables are.

    Returns:
      [..., num_outputs].
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank or 0
    size = static_shape(inputs)[-1] if rank else None
    if not size or rank < 2:
        raise InvalidSetting(
            f"fully_connected got the shape {inputs.shape}. Give at least two dimensions, the "
            f"last of a known size."
        )
    with v1.variable_scope(scope, "fully_connected", [inputs], reuse=reuse) as found:
        made = LayerBuilder(
            found, inputs.dtype.base_dtype, trainable, variables_collections, outputs_collections
        )
        weights = made.variable(
            "weights", [size, num_outputs], weights_initializer, weights_regularizer
        )
        outputs = (
            tf.matmul(inputs, weights)
            if rank == 2
            else tf.tensordot(inputs, weights, [[rank - 1], [0]])
        )
        outputs.set_shape([*static_shape(inputs)[:-1], num_outputs])
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            biases = made.variable("biases", [num_outputs], biases_initializer, biases_regularizer)
            outputs = tf.nn.bias_add(outputs, biases)
        return made.result(outputs, activation_fn)


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
    """The inputs with a number, of "biases", added to each channel; see `fully_connected`."""
    inputs = tf.convert_to_tensor(inputs)
    with v1.variable_scope(scope, "BiasAdd", [inputs], reuse=reuse) as found:
        made = LayerBuilder(
            found, inputs.dtype.base_dtype, trainable, variables_collections, outputs_collections
        )
        channels = static_channels(inputs, 1 if data_format == "NCHW" else -1)
        biases = made.variable("biases", [channels], initializer, regularizer)
        return made.result(tf.nn.bias_add(inputs, biases, data_format=data_format), activation_fn)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """[b, ...] as [b, the product of the others]."""
    with v1.name_scope(scope, "Flatten", [inputs]) as name:
        inputs = tf.convert_to_tensor(inputs)
        if not inputs.shape.rank:
            raise InvalidSetting(f"flatten got the shape {inputs.shape}. Give [batch, ...].")
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
    """The inputs, of which in training some are 0 and the others larger in return.

    Args:
      inputs: any shape.
      keep_prob: share of those that are kept.
      noise_shape: shape of what is drawn; 1 where a dimension shares its fate.
      is_training: a bool, or a tensor of one.
      outputs_collections, scope: see `fully_connected`.
      seed: of the random numbers.
    """
    with v1.variable_scope(scope, "Dropout", [inputs]) as found:
        inputs = tf.convert_to_tensor(inputs)

        def dropped() -> Any:
            return v1.nn.dropout(inputs, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed)

        if isinstance(is_training, tf.Tensor) and tf.get_static_value(is_training) is None:
            outputs = tf.cond(is_training, dropped, lambda: tf.identity(inputs))
        else:
            known = tf.get_static_value(is_training)
            outputs = dropped() if known else tf.identity(inputs)
        return add_to_outputs_collections(outputs_collections, found.name, outputs)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """[b] labels as [b, num_classes] numbers."""
    with v1.name_scope(scope, "OneHotEncoding", [labels]) as name:
        labels = tf.cast(labels, tf.int64)
        outputs = tf.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return add_to_outputs_collections(outputs_collections, name, outputs)


@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Any:
    """The softmax over the last dimension."""
    with v1.variable_scope(scope, "softmax", [logits]):
        return tf.nn.softmax(logits)


@add_arg_scope
def maxout(inputs: Any, num_units: int, axis: int = -1, scope: Any = None) -> Any:
    """The largest of each group of a dimension, of which num_units are left.

    Source: Goodfellow et al., "Maxout Networks", 2013.

    Raises:
      InvalidSetting: the dimension is no multiple of num_units.
    """
    with v1.variable_scope(scope, "MaxOut", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        sizes = static_shape(inputs)
        axis %= len(sizes)
        size = sizes[axis]
        if size is None or size % num_units:
            raise InvalidSetting(
                f"maxout got the shape {inputs.shape} and num_units={num_units}. Give a divisor "
                f"of dimension {axis}."
            )
        shape = tf.shape(inputs)
        split = [num_units, size // num_units]
        grouped = tf.reshape(inputs, tf.concat([shape[:axis], split, shape[axis + 1 :]], 0))
        outputs = tf.reduce_max(grouped, axis=axis + 1)
        outputs.set_shape([*sizes[:axis], num_units, *sizes[axis + 1 :]])
        return outputs


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Any:
    """The inputs scaled to a norm of 1 along a dimension."""
    with v1.variable_scope(scope, "UnitNorm", [inputs]):
        squares = tf.reduce_sum(tf.square(inputs), axis=dim, keepdims=True)
        return tf.divide(inputs, tf.sqrt(squares + epsilon))
