"""How a request becomes features, and in training and evaluation labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.config import validation
from trainer.config.namedtuple_compat import NamedTupleMixin

_ONE_RECEIVER = "input"
_ONE_FEATURE = "feature"
_ONE_LABEL = "label"


@dataclass(frozen=True)
class ServingInputReceiver(NamedTupleMixin):
    """The door of an exported model.

    Attributes:
      features: what model_fn gets: a dict of tensors, sparse or ragged ones among them; a single
        tensor is given the name "feature".
      receiver_tensors: what clients send: alias → placeholder. A single tensor is given the
        alias "input".
      receiver_tensors_alternatives: name → other receiver tensors for the same features.

    Raises:
      InvalidSetting: a part is missing, or is no tensor, or its name is no string.
    """

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self._set("features", _tensors(self, "features", self.features, _ONE_FEATURE))
        self._check_receivers()

    def _check_receivers(self) -> None:
        given = _tensors(self, "receiver_tensors", self.receiver_tensors, _ONE_RECEIVER)
        self._set("receiver_tensors", given)
        alternatives = self.receiver_tensors_alternatives
        if alternatives is None:
            return
        if not isinstance(alternatives, Mapping):
            raise InvalidSetting(
                f"receiver_tensors_alternatives is {alternatives!r}. Give a dict, name → tensors."
            )
        checked = {
            name: _tensors(self, f"receiver_tensors_alternatives[{name!r}]", each, _ONE_RECEIVER)
            for name, each in alternatives.items()
        }
        self._set("receiver_tensors_alternatives", checked)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class TensorServingInputReceiver(ServingInputReceiver):
    """The door of an exported model whose model_fn takes one tensor, not a dict.

    Attributes:
      features: what model_fn gets: a tensor, sparse and ragged ones included.
      receiver_tensors: see `ServingInputReceiver`.
      receiver_tensors_alternatives: see `ServingInputReceiver`.

    Raises:
      InvalidSetting: the features are no single tensor, or a receiver does not fit.
    """

    def __post_init__(self) -> None:
        if not tf.is_tensor(self.features):
            raise InvalidSetting(
                f"TensorServingInputReceiver features is {self.features!r}. Give one tensor, or a "
                f"ServingInputReceiver for a dict of them."
            )
        self._check_receivers()


@dataclass(frozen=True)
class SupervisedInputReceiver(NamedTupleMixin):
    """The door of a model that is exported for training or evaluation.

    Attributes:
      features: what model_fn gets: a tensor, or a dict of tensors.
      labels: a tensor, or a dict of tensors.
      receiver_tensors: what is fed: alias → placeholder. A single tensor is given the alias
        "input".

    Raises:
      InvalidSetting: a part is missing, or is no tensor, or its name is no string.
    """

    features: Any
    labels: Any
    receiver_tensors: Any

    def __post_init__(self) -> None:
        for name in ("features", "labels"):
            _tensors(self, name, getattr(self, name), name)
        given = _tensors(self, "receiver_tensors", self.receiver_tensors, _ONE_RECEIVER)
        object.__setattr__(self, "receiver_tensors", given)


def build_raw_serving_input_receiver_fn(
    features: Any, default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A serving_input_receiver_fn whose clients send the features themselves.

    Args:
      features: a tensor, or name → tensor, whose type and shape the placeholder takes, the first
        dimension being the batch.
      default_batch_size: the first dimension of every placeholder; None leaves it open.
    """
    validation.check("default_batch_size", default_batch_size, least=1)

    def serving_input_receiver_fn() -> ServingInputReceiver:
        placeholders = _placeholders(features, _ONE_FEATURE, default_batch_size)
        return ServingInputReceiver(placeholders, placeholders)

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """An input receiver function, for training or evaluation, that is fed features and labels.

    Args:
      features, labels: each a tensor, or name → tensor, whose type and shape the placeholder
        takes, the first dimension being the batch.
      default_batch_size: the first dimension of every placeholder; None leaves it open.

    Raises:
      InvalidSetting: a name is both a feature's and a label's.
    """
    validation.check("default_batch_size", default_batch_size, least=1)
    named = [
        set(each) if isinstance(each, Mapping) else {name}
        for each, name in ((features, _ONE_FEATURE), (labels, _ONE_LABEL))
    ]
    both = sorted(named[0] & named[1])
    if both:
        raise InvalidSetting(
            f"features and labels must have distinct keys, and both have {', '.join(both)}. "
            f"Rename one."
        )

    def supervised_input_receiver_fn() -> SupervisedInputReceiver:
        of_features = _placeholders(features, _ONE_FEATURE, default_batch_size)
        of_labels = _placeholders(labels, _ONE_LABEL, default_batch_size)
        return SupervisedInputReceiver(
            of_features if isinstance(features, Mapping) else of_features[_ONE_FEATURE],
            of_labels if isinstance(labels, Mapping) else of_labels[_ONE_LABEL],
            {**of_features, **of_labels},
        )

    return supervised_input_receiver_fn


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A serving_input_receiver_fn whose clients send serialized tf.Examples, alias "examples".

    Args:
      feature_spec: name → tf.io.FixedLenFeature and kin, as tf.io.parse_example takes them.
      default_batch_size: how many examples one request has; None leaves it open.
    """
    validation.check("default_batch_size", default_batch_size, least=1)

    def serving_input_receiver_fn() -> ServingInputReceiver:
        examples = tf.compat.v1.placeholder(
            tf.string, [default_batch_size], name="input_example_tensor"
        )
        features = tf.io.parse_example(examples, dict(feature_spec))
        return ServingInputReceiver(features, {"examples": examples})

    return serving_input_receiver_fn


def _placeholders(like: Any, one: str, batch_size: int | None) -> dict[str, Any]:
    tensors = like if isinstance(like, Mapping) else {one: like}
    found = {}
    for name, tensor in tensors.items():
        if not tf.is_tensor(tensor):
            raise InvalidSetting(f"{name!r} is {tensor!r}. Give tensors that are like the input.")
        shape = tensor.shape
        if shape.rank is not None and shape.rank > 0:
            shape = tf.TensorShape([batch_size, *shape[1:]])
        found[name] = tf.compat.v1.placeholder(tensor.dtype, shape, name=name)
    return found


def _tensors(owner: Any, part: str, value: Any, one: str) -> dict[str, Any]:
    """A dict of tensors by name, a single tensor under a name of its own."""
    title = f"{type(owner).__name__} {part}"
    if value is None:
        raise InvalidSetting(f"{title} is None: {part} must be defined. Give a tensor or a dict.")
    if not isinstance(value, Mapping):
        value = {one: value}
    for name, tensor in value.items():
        if not isinstance(name, str):
            raise InvalidSetting(f"{title} has the key {name!r}. Keys must be strings.")
        # A feature that is not there in an export can be None, for the model to see.
        if not tf.is_tensor(tensor) and (part != "features" or tensor is not None):
            raise InvalidSetting(
                f"{title} has {name!r}: {tensor!r}. Give a Tensor, SparseTensor or RaggedTensor."
            )
    return dict(value)
