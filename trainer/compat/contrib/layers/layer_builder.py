"""LayerBuilder and other code that all layers of tf.contrib.layers share.

The code creates the variable scopes and variables of layers, adds biases or applies normalizers,
and adds outputs to collections.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.variables import model_variable

v1 = tf.compat.v1


class LayerBuilder:
    """Creates the variables of one layer, and applies the last operations of the layer.

    These operations are the addition of biases or a normalizer, and the activation function.

    Args:
      variables_collections: a list of collections for all variables, or a dict of variable
        name → list of collections; None for the default collections.
      outputs_collections: collections to which `finish` adds the layer's output; None for none.
    """

    def __init__(
        self,
        scope: Any,
        dtype: Any,
        trainable: bool,
        variables_collections: Any,
        outputs_collections: Any,
    ) -> None:
        self._scope, self.dtype, self._trainable = scope, dtype, trainable
        self._variables_collections = variables_collections
        self._outputs_collections = outputs_collections

    def variable(
        self,
        name: str,
        shape: Any,
        initializer: Any,
        regularizer: Any = None,
        trainable: bool = True,
    ) -> Any:
        """Create or reuse a variable of the layer in the layer's variable scope and collections.

        Args:
          regularizer: function that maps the variable to a loss; None for none.
        """
        return model_variable(
            name,
            shape=shape,
            dtype=self.dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable and self._trainable,
            collections=collections_for(self._variables_collections, name),
        )

    def normalize_or_add_bias(
        self,
        outputs: Any,
        normalizer_fn: Callable[..., Any] | None,
        normalizer_params: Mapping[str, Any] | None,
        biases_initializer: Any,
        biases_regularizer: Any,
        is_channels_first: bool = False,
    ) -> Any:
        """Apply normalizer_fn to the outputs; without normalizer_fn, add the variable "biases".

        Args:
          is_channels_first: whether the channels are dimension 1, not the last dimension.
        """
        if normalizer_fn is not None:
            return normalizer_fn(outputs, **(normalizer_params or {}))
        if biases_initializer is None:
            return outputs
        channels = static_channels(outputs, 1 if is_channels_first else -1)
        biases = self.variable("biases", [channels], biases_initializer, biases_regularizer)
        data_format = "NC..." if is_channels_first else None
        return tf.nn.bias_add(outputs, biases, data_format=data_format)

    def finish(self, outputs: Any, activation_fn: Callable[[Any], Any] | None = None) -> Any:
        """Apply the activation function, add the result to outputs_collections, and return it."""
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return add_to_outputs_collections(self._outputs_collections, self._scope.name, outputs)


@contextlib.contextmanager
def layer_scope(
    scope: Any,
    default_name: str,
    inputs: Any,
    reuse: Any,
    trainable: bool,
    variables_collections: Any,
    outputs_collections: Any,
    dtype: Any = None,
) -> Iterator[LayerBuilder]:
    """Enter the variable scope of a layer.

    Args:
      variables_collections: a list of collections for all variables, or a dict of variable name →
        list of collections; None for the default collections.
    """
    with v1.variable_scope(scope, default_name, [inputs], reuse=reuse) as variable_scope:
        yield LayerBuilder(
            variable_scope,
            inputs.dtype.base_dtype if dtype is None else dtype,
            trainable,
            variables_collections,
            outputs_collections,
        )


def collections_for(variables_collections: Any, name: str) -> list[Any] | None:
    """Return the collections for a variable of a layer.

    Args:
      name: name of the variable, such as "weights" or "biases".

    Returns:
      None means the default collections.
    """
    if isinstance(variables_collections, Mapping):
        return variables_collections.get(name)
    return variables_collections


def add_to_outputs_collections(collections: Any, scope: str, outputs: Any) -> Any:
    """Add a layer's output to collections, and make the layer's scope name an alias of the output.

    For a layer with variables, `scope` is the name of its variable scope, which does not depend on
    the name scopes around the layer.
    """
    if collections is not None:
        # Add the alias: slim.utils.convert_collection_to_dict uses it as the key of the output.
        outputs.aliases = [*getattr(outputs, "aliases", ()), scope.rstrip("/")]
        v1.add_to_collections(collections, outputs)
    return outputs


def static_shape(tensor: Any) -> list[int | None]:
    """Return the sizes of a tensor's dimensions, None for unknown sizes.

    Use the result instead of tensor.shape: in programs that enable TensorFlow 1's behavior, an item
    of tensor.shape is a Dimension object and never None.
    """
    shape: list[int | None] = tensor.shape.as_list()
    return shape


def static_channels(tensor: Any, axis: int) -> int:
    """Return the number of channels: the static size of the dimension `axis`."""
    channels = static_shape(tensor)[axis]
    if channels is None:
        raise InvalidSetting(
            f"A layer got inputs of shape {tensor.shape}, in which dimension {axis} (the "
            f"channels) is unknown. Set the static shape of the inputs."
        )
    return channels


def expand_to_pair(value: Any) -> tuple[int, int]:
    """Return a (height, width) pair; a single number becomes both."""
    return expand_sizes(value, 2)  # type: ignore[return-value]


def expand_sizes(value: Any, count: int) -> tuple[int, ...]:
    """Return a size for each of `count` dimensions; a single number becomes every size."""
    if isinstance(value, tf.TensorShape):
        value = value.as_list()
    if isinstance(value, Sequence):
        sizes = tuple(int(size) for size in value)
        return sizes * count if len(sizes) == 1 else sizes
    return (int(value),) * count


def is_channels_first(data_format: str | None) -> bool:
    """Return whether a data format puts channels before spatial dimensions, as "NCHW" does."""
    return data_format is not None and data_format.startswith("NC")
