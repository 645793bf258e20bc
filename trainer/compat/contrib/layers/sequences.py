"""Functions that apply several layers in sequence, and a layer that looks up embeddings."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.variables import model_variable

v1 = tf.compat.v1


def repeat(
    inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Apply a layer several times, each time to the previous output and with its own variables.

    Args:
      kwargs: further arguments of the layer. `scope`, by default the name of the layer function,
        gives the layers their variable scopes: SCOPE_1, SCOPE_2 and so on.
    """
    scope = kwargs.pop("scope", None)
    with v1.variable_scope(scope, "Repeat", [inputs]):
        name = scope or _layer_name(layer)
        for number in range(1, repetitions + 1):
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{name}_{number}"})
    return inputs


def stack(inputs: Any, layer: Callable[..., Any], stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Apply a layer once for each element of stack_args, each time to the previous layer's output.

    Args:
      kwargs: arguments for all layers. `scope`, by default the name of the layer function, gives
        the layers their variable scopes: SCOPE_1, SCOPE_2 and so on.
    """
    scope = kwargs.pop("scope", None)
    with v1.variable_scope(scope, "Stack", [inputs]):
        name = scope or _layer_name(layer)
        for number, argument in enumerate(stack_args, 1):
            arguments = argument if isinstance(argument, (list, tuple)) else [argument]
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
    """Look up ids in the variable "embeddings", [vocab_size, embed_dim].

    Args:
      ids: int32 or int64 [b, n].
    """
    if not reuse and (vocab_size is None or embed_dim is None):
        raise InvalidSetting(
            f"embed_sequence got vocab_size={vocab_size} and embed_dim={embed_dim}. Set both, "
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
        distinct_ids, positions = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.gather(tf.nn.embedding_lookup(embeddings, distinct_ids), positions)
        embedded = tf.reshape(rows, tf.concat([tf.shape(ids), tf.shape(embeddings)[-1:]], 0))
        embedded.set_shape([*ids.shape.as_list(), embeddings.shape.as_list()[-1]])
        return embedded
