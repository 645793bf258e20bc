"""What every layer does with its scope, its variables and its result."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.variables import model_variable

v1 = tf.compat.v1


def collections_for(variables_collections: Any, name: str) -> list[Any] | None:
    """The collections that a variable of a layer goes to.

    Args:
      variables_collections: a list for all variables, or name → list; None for none.
      name: "weights", "biases", ...
    """
    if isinstance(variables_collections, Mapping):
        return variables_collections.get(name)
    return variables_collections


class LayerBuilder:
    """Makes the variables of one layer, and ends it.

    Attributes:
      dtype: of the variables.
    """

    def __init__(
        self, scope: Any, dtype: Any, trainable: bool, collections: Any, outputs: Any
    ) -> None:
        """Makes them all with one type.

        Args:
          scope: the layer's variable scope.
          dtype: of the variables.
          trainable: whether those are that may be.
          collections: variables_collections of the layer.
          outputs: outputs_collections of the layer.
        """
        self._scope, self.dtype, self._trainable = scope, dtype, trainable
        self._collections, self._outputs = collections, outputs

    def variable(
        self,
        name: str,
        shape: Any,
        initializer: Any,
        regularizer: Any = None,
        trainable: bool = True,
    ) -> Any:
        """A variable of the layer."""
        return model_variable(
            name,
            shape=shape,
            dtype=self.dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable and self._trainable,
            collections=collections_for(self._collections, name),
        )

    def result(self, outputs: Any, activation_fn: Callable[[Any], Any] | None = None) -> Any:
        """What the layer returns."""
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return add_to_outputs_collections(self._outputs, self._scope.name, outputs)


def add_to_outputs_collections(collections: Any, scope: str, outputs: Any) -> Any:
    """A layer's result, put into collections, where it is known by the layer's scope.

    That of a layer with variables is its variable scope, which no name scope around it changes.
    """
    if collections is not None:
        # slim.utils.convert_collection_to_dict goes by it.
        outputs.aliases = [*getattr(outputs, "aliases", ()), scope.rstrip("/")]
        v1.add_to_collections(collections, outputs)
    return outputs


def static_shape(tensor: Any) -> list[int | None]:
    """The sizes of a tensor's dimensions, None for unknown ones.

    Single items of a shape are objects of their own, never None, where a program has TensorFlow
    1's behaviour.
    """
    found: list[int | None] = tensor.shape.as_list()
    return found


def static_channels(tensor: Any, axis: int) -> int:
    """The size of the dimension that is the channels.

    Raises:
      InvalidSetting: it is unknown.
    """
    found = static_shape(tensor)[axis]
    if found is None:
        raise InvalidSetting(
            f"a layer got the shape {tensor.shape}, and needs to know dimension {axis}, the "
            f"channels. Set it."
        )
    return found


def expand_to_pair(value: Any) -> tuple[int, int]:
    """A height and a width, where one number stands for both."""
    return expand_sizes(value, 2)  # type: ignore[return-value]


def expand_sizes(value: Any, count: int) -> tuple[int, ...]:
    """As many numbers as there are dimensions, where one may stand for all."""
    if isinstance(value, tf.TensorShape):
        value = value.as_list()
    if isinstance(value, Sequence):
        found = tuple(int(each) for each in value)
        return found * count if len(found) == 1 else found
    return (int(value),) * count


def is_channels_first(data_format: str | None) -> bool:
    """Whether channels come before the places."""
    return data_format is not None and data_format.startswith("NC")


def add_channel_bias(outputs: Any, biases: Any, is_channels_first: bool) -> Any:
    """The outputs with a number added to each channel."""
    return tf.nn.bias_add(outputs, biases, data_format="NC..." if is_channels_first else None)
