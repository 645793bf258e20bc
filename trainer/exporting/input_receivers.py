"""Input receivers: the placeholders of an exported model, and the features built from them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting
from trainer.config.namedtuple_compat import NamedTupleMixin
from trainer.inputs.input_pipeline import build_inputs

_ONE_RECEIVER = "input"
_ONE_FEATURE = "feature"
_ONE_LABEL = "label"
# What model_fn gets.
_PARTS = ("features", "labels")


@dataclass(frozen=True)
class ServingInputReceiver(NamedTupleMixin):
    """The placeholders that a serving request fills, and the features computed from them.

    Attributes:
      features: the features for model_fn: name → Tensor, SparseTensor or RaggedTensor. A single
        tensor is stored under the name "feature".
      receiver_tensors: the inputs of a request: alias → placeholder. A single tensor is stored
        under the alias "input".
      receiver_tensors_alternatives: name → other receiver tensors from which the same features can
        be computed; None for none.

    Raises:
      InvalidSetting: an attribute is missing or is not a tensor, or a name is not a string.
    """

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        features = _to_tensor_dict(self, "features", self.features, _ONE_FEATURE)
        self._set("features", features)
        self._check_receivers()

    def _check_receivers(self) -> None:
        """Validate the receiver tensors and their alternatives, and store them as dicts."""
        tensors = _to_tensor_dict(self, "receiver_tensors", self.receiver_tensors, _ONE_RECEIVER)
        self._set("receiver_tensors", tensors)
        alternatives = self.receiver_tensors_alternatives
        if alternatives is None:
            return
        if not isinstance(alternatives, Mapping):
            raise InvalidSetting(
                f"receiver_tensors_alternatives is {alternatives!r}. Give a dict, name → tensors."
            )
        alternatives = {
            name: _to_tensor_dict(
                self, f"receiver_tensors_alternatives[{name!r}]", tensors, _ONE_RECEIVER
            )
            for name, tensors in alternatives.items()
        }
        self._set("receiver_tensors_alternatives", alternatives)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class TensorServingInputReceiver(ServingInputReceiver):
    """A ServingInputReceiver for a model_fn whose features are one tensor instead of a dict.

    Attributes:
      receiver_tensors: the inputs of a request: alias → placeholder. A single tensor is stored
        under the alias "input".
      receiver_tensors_alternatives: name → other receiver tensors from which the same features can
        be computed; None for none.
    """

    def __post_init__(self) -> None:
        if not tf.is_tensor(self.features):
            raise InvalidSetting(
                f"TensorServingInputReceiver features is {self.features!r}. Give one tensor, or a "
                f"ServingInputReceiver for a dict of them."
            )
        self._check_receivers()


class UnsupervisedInputReceiver(ServingInputReceiver):
    """The placeholders of a model that is exported for training or evaluation without labels."""

    def __init__(self, features: Any, receiver_tensors: Any) -> None:
        super().__init__(features, receiver_tensors, None)


@dataclass(frozen=True)
class SupervisedInputReceiver(NamedTupleMixin):
    """The placeholders of a model that is exported for training or evaluation.

    Attributes:
      features: the features for model_fn: a tensor, or name → tensor.
      labels: the labels for model_fn: a tensor, or name → tensor.
      receiver_tensors: the tensors to feed: alias → placeholder. A single tensor is stored under
        the alias "input".

    Raises:
      InvalidSetting: an attribute is missing or is not a tensor, or a name is not a string.
    """

    features: Any
    labels: Any
    receiver_tensors: Any

    def __post_init__(self) -> None:
        for name in _PARTS:
            _to_tensor_dict(self, name, getattr(self, name), name)
        tensors = _to_tensor_dict(self, "receiver_tensors", self.receiver_tensors, _ONE_RECEIVER)
        object.__setattr__(self, "receiver_tensors", tensors)


def build_raw_serving_input_receiver_fn(
    features: Any, default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Build a serving_input_receiver_fn for clients that send the feature tensors themselves.

    Args:
      features: a tensor, or name → tensor. Each placeholder takes the dtype and the shape of its
        tensor; the first dimension is the batch.
      default_batch_size: the first dimension of every placeholder, in examples; None leaves the
        dimension unknown.

    Raises:
      InvalidSetting: default_batch_size is less than 1. The returned function raises
        InvalidSetting if a feature is not a tensor.
    """
    validation.check_integer("default_batch_size", default_batch_size, least=1, optional=True)

    def serving_input_receiver_fn() -> ServingInputReceiver:
        placeholders = _make_placeholders(features, _ONE_FEATURE, default_batch_size)
        receiver_tensors = {str(name): tensor for name, tensor in placeholders.items()}
        return ServingInputReceiver(placeholders, receiver_tensors)

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """Build the input receiver function for an export of a model in mode TRAIN or EVAL.

    Args:
      features: a tensor, or name → tensor.
      labels: a tensor, or name → tensor, like features. The placeholder of a single tensor has the
        key "label".
      default_batch_size: the first dimension of every placeholder, in examples; None leaves the
        dimension unknown.

    Raises:
      InvalidSetting: features and labels share a name, or default_batch_size is less than 1. The
        returned function raises InvalidSetting if a feature or a label is not a tensor.
    """
    validation.check_integer("default_batch_size", default_batch_size, least=1, optional=True)
    feature_names = set(features) if isinstance(features, Mapping) else {_ONE_RECEIVER}
    label_names = set(labels) if isinstance(labels, Mapping) else {_ONE_LABEL}
    shared = sorted(feature_names & label_names)
    if shared:
        raise InvalidSetting(
            f"features and labels must have distinct keys, and both have {', '.join(shared)}. "
            f"Rename one."
        )

    def supervised_input_receiver_fn() -> SupervisedInputReceiver:
        feature_tensors = _make_placeholders(features, _ONE_RECEIVER, default_batch_size)
        label_tensors = _make_placeholders(labels, _ONE_LABEL, default_batch_size)
        return SupervisedInputReceiver(
            feature_tensors if isinstance(features, Mapping) else feature_tensors[_ONE_RECEIVER],
            label_tensors if isinstance(labels, Mapping) else label_tensors[_ONE_LABEL],
            {str(name): tensor for name, tensor in {**feature_tensors, **label_tensors}.items()},
        )

    return supervised_input_receiver_fn


def build_supervised_input_receiver_fn_from_input_fn(
    input_fn: Callable[..., Any], **input_fn_args: Any
) -> Callable[[], SupervisedInputReceiver]:
    """Build the input receiver function for an export in mode TRAIN or EVAL, from an input_fn.

    The placeholders have the names, dtypes and shapes of the batches that input_fn returns.

    Args:
      input_fn: returns batches of (features, labels), as a tf.data.Dataset or as tensors.
    """
    with tf.Graph().as_default():
        inputs = build_inputs(input_fn(**input_fn_args))
    return build_raw_supervised_input_receiver_fn(inputs.features, inputs.labels)


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Build a serving_input_receiver_fn for clients that send serialized tf.Examples.

    The placeholder has the key "examples" in receiver_tensors, dtype string and shape [batch].

    Args:
      feature_spec: name → tf.io.FixedLenFeature, VarLenFeature or another parsing feature of
        tf.io.parse_example.
      default_batch_size: the number of examples per request; None allows any number.
    """
    validation.check_integer("default_batch_size", default_batch_size, least=1, optional=True)

    def serving_input_receiver_fn() -> ServingInputReceiver:
        examples = tf.compat.v1.placeholder(
            tf.string, [default_batch_size], name="input_example_tensor"
        )
        features = tf.io.parse_example(examples, dict(feature_spec))
        return ServingInputReceiver(features, {"examples": examples})

    return serving_input_receiver_fn


def _make_placeholders(features: Any, default_name: str, batch_size: int | None) -> dict[str, Any]:
    """Make a placeholder for each tensor, with the dtype and shape of the tensor."""
    tensors = features if isinstance(features, Mapping) else {default_name: features}
    placeholders = {}
    for name, tensor in tensors.items():
        if not tf.is_tensor(tensor):
            raise InvalidSetting(f"{name!r} is {tensor!r}. Give tensors that are like the input.")
        shape = tensor.shape
        if shape.rank is not None and shape.rank > 0:
            shape = tf.TensorShape([batch_size, *shape[1:]])
        placeholders[name] = tf.compat.v1.placeholder(tensor.dtype, shape, name=str(name))
    return placeholders


def _to_tensor_dict(receiver: Any, part: str, value: Any, default_name: str) -> dict[str, Any]:
    """Validate an attribute of an input receiver, and return it as a dict of tensors by name."""
    title = f"{type(receiver).__name__} {part}"
    if value is None:
        raise InvalidSetting(f"{title} is None: {part} must be defined. Give a tensor or a dict.")
    if not isinstance(value, Mapping):
        value = {default_name: value}
    for name, tensor in value.items():
        # Allow whole numbers as names, because an input_fn may return such names.
        if not isinstance(name, str) and not (part in _PARTS and isinstance(name, int)):
            raise InvalidSetting(f"{title} has the key {name!r}. Keys must be strings.")
        # Allow None among the features: a model may accept None for a feature that exists in
        # training only.
        if not tf.is_tensor(tensor) and (part != "features" or tensor is not None):
            raise InvalidSetting(
                f"{title} has {name!r}: {tensor!r}. Give a Tensor, SparseTensor or RaggedTensor."
            )
    return dict(value)
