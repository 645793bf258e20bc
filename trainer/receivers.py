"""How a served request becomes features."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting

_DEFAULT_RECEIVER = "input"


@dataclass(frozen=True)
class ServingInputReceiver:
    """The door of an exported model.

    Attributes:
      features: what model_fn gets: a tensor, or a dict of tensors.
      receiver_tensors: what clients send: alias → placeholder. A single tensor is given the
        alias "input".
      receiver_tensors_alternatives: name → other receiver tensors for the same features.
    """

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.features is None:
            raise InvalidSetting("ServingInputReceiver has no features. Give a tensor or a dict.")
        if tf.is_tensor(self.receiver_tensors):
            object.__setattr__(self, "receiver_tensors", {_DEFAULT_RECEIVER: self.receiver_tensors})
        for name, tensor in self.receiver_tensors.items():
            if not isinstance(name, str) or not tf.is_tensor(tensor):
                raise InvalidSetting(
                    f"receiver_tensors has {name!r}: {tensor!r}. Give names and tensors."
                )


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A serving_input_receiver_fn whose clients send the features themselves.

    Args:
      features: name → tensor whose type and shape the placeholder takes, its first dimension
        being the batch.
      default_batch_size: the first dimension of every placeholder; None leaves it open.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        placeholders = {
            name: tf.compat.v1.placeholder(
                like.dtype, [default_batch_size, *like.shape.as_list()[1:]], name=name
            )
            for name, like in features.items()
        }
        return ServingInputReceiver(placeholders, placeholders)

    return serving_input_receiver_fn


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A serving_input_receiver_fn whose clients send serialized tf.Examples, alias "examples".

    Args:
      feature_spec: name → tf.io.FixedLenFeature and kin, as tf.io.parse_example takes them.
      default_batch_size: how many examples one request has; None leaves it open.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        examples = tf.compat.v1.placeholder(tf.string, [default_batch_size], name="input_example")
        features = tf.io.parse_example(examples, dict(feature_spec))
        return ServingInputReceiver(features, {"examples": examples})

    return serving_input_receiver_fn
