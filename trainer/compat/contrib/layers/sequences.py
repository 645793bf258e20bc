"""Layers one after another, and embeddings of ids."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.variables import model_variable

v1 = tf.compat.v1


def repeat(
    inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """A layer applied several times, with variables of its own each time.

    Args:
      inputs: of the first.
      repetitions: how often.
      layer: takes inputs and scope.
      args, kwargs: further arguments of the layer; scope names them all, the n-th SCOPE_n.
    """
    scope = kwargs.pop("scope", None)
    with v1.variable_scope(scope, "Repeat", [inputs]):
        name = scope or _layer_name(layer)
        for number in range(1, repetitions + 1):
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{name}_{number}"})
    return inputs


def stack(inputs: Any, layer: Callable[..., Any], stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """A layer applied once for each of some arguments.

    Args:
      inputs: of the first.
      layer: takes inputs, what stack_args has for it, and scope.
      stack_args: for each the argument that comes second, or a list of them.
      kwargs: arguments that all share; scope names them all, the n-th SCOPE_n.
    """
    scope = kwargs.pop("scope", None)
    with v1.variable_scope(scope, "Stack", [inputs]):
        name = scope or _layer_name(layer)
        for number, each in enumerate(stack_args, 1):
            arguments = each if isinstance(each, (list, tuple)) else [each]
            inputs = layer(inputs, *arguments, **{**kwargs, "scope": f"{name}_{number}"})
    return inputs


def _layer_name(layer: Any) -> str:
    function = getattr(layer, "func", layer)
    return str(getattr(function, "__name__", "layer"))


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> Any:
    """Rows of "embeddings", [vocab_size, embed_dim], for ids.

    Args:
      ids: [b, n] int32 or int64.
      vocab_size, embed_dim: of the variable; None for both where it is reused.
      unique: whether a row that is wanted several times is fetched once.
      initializer, regularizer, trainable, scope, reuse: of the variable; "EmbedSequence".

    Returns:
      [b, n, embed_dim].
    """
    if not reuse and (vocab_size is None or embed_dim is None):
        raise InvalidSetting(
            f"embed_sequence has vocab_size={vocab_size} and embed_dim={embed_dim}. Give both, "
            f"or reuse=True."
        )
    ids = tf.convert_to_tensor(ids)
    with v1.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        embeddings = model_variable(
            "embeddings",
            None if vocab_size is None else [vocab_size, embed_dim],
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
        )
        if not unique:
            return tf.nn.embedding_lookup(embeddings, ids)
        different, places = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.gather(tf.nn.embedding_lookup(embeddings, different), places)
        found = tf.reshape(rows, tf.concat([tf.shape(ids), tf.shape(embeddings)[-1:]], 0))
        found.set_shape([*ids.shape.as_list(), embeddings.shape.as_list()[-1]])
        return found
