"""Wraps a model or layer of tf_keras or Keras 3 as a model to export."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve import keras_internals
from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export.functional.callable_model import DEFAULT_OUTPUT, CallableModel

# Names of the packages of tf_keras and Keras 3. They are looked up in sys.modules and not imported:
# the package of a model is imported already, and perhaps the other one is not installed.
_PACKAGES = ("tf_keras", "keras")


def is_keras(model: Any) -> bool:
    """Return whether an object is a layer or a model of tf_keras or of Keras 3."""
    packages = [sys.modules[name] for name in _PACKAGES if name in sys.modules]
    return any(isinstance(model, package.layers.Layer) for package in packages)


class KerasModel(CallableModel):
    """A model to export that is a Keras model or layer. It is called with training=False."""

    def __init__(self, function: Any, title: str) -> None:
        super().__init__(function, title)
        backend = _get_backend(function)
        if backend != "tensorflow":
            raise ExportError(
                f"the Keras backend of {title} is {backend}. Set KERAS_BACKEND=tensorflow before "
                f"Keras is imported, and load the model again."
            )
        self._inputs = _get_input_structure(function)

    def default_specs(self) -> Mapping[str, Any] | None:
        """Return the inputs that a functional or sequential model declares.

        Returns:
          Name of the input → tf.TensorSpec; None for a model or layer that declares no inputs.
        """
        if self._inputs is None:
            return None
        tensors = tf.nest.flatten(self._inputs)
        return dict(zip(self._input_aliases(), map(_to_spec, tensors), strict=True))

    def check_aliases(self, signature_name: str, aliases: Sequence[str]) -> None:
        """Check that the inputs of a signature have the names of the model's inputs.

        If the signature and the model have one input each, the names can differ.
        """
        if self._inputs is None or (len(aliases) == 1 and len(self._input_aliases()) == 1):
            return
        if set(aliases) != set(self._input_aliases()):
            raise InvalidSetting(
                f"signature {signature_name!r} has the inputs {sorted(aliases)}, and {self.title} "
                f"takes {sorted(self._input_aliases())}. Give both the same names."
            )

    def _input_aliases(self) -> list[str]:
        """Return the names of the model's inputs, in the order of tf.nest.flatten."""
        if isinstance(self._inputs, Mapping):
            return sorted(self._inputs)
        return [tensor.name.partition(":")[0] for tensor in tf.nest.flatten(self._inputs)]

    def _call(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> Any:
        del use_tpu
        return self.function(self._pack_inputs(inputs), **self._inference_arguments())

    def _pack_inputs(self, inputs: Mapping[str, Any]) -> Any:
        """Arrange inputs in the nest that the model takes as its argument."""
        if self._inputs is None:
            (alias, *others) = inputs
            return dict(inputs) if others else inputs[alias]
        if len(inputs) == 1:
            return tf.nest.pack_sequence_as(self._inputs, list(inputs.values()))
        ordered = [inputs[alias] for alias in self._input_aliases()]
        return tf.nest.pack_sequence_as(self._inputs, ordered)

    def _inference_arguments(self) -> dict[str, bool]:
        return {"training": False} if keras_internals.takes_training(self.function) else {}

    def _name_outputs(self, returned: Any) -> Mapping[Any, Any]:
        if isinstance(returned, Mapping):
            return returned
        values = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        # A sequential model of Keras 3 has no output names. Take them from the functional model
        # that it contains.
        keras = sys.modules.get("keras")
        is_sequential = keras is not None and isinstance(self.function, keras.Sequential)
        functional = keras_internals.get_functional_model(self.function) if is_sequential else None
        names = getattr(functional or self.function, "output_names", None) or []
        if len(names) != len(values):
            names = (
                [DEFAULT_OUTPUT]
                if len(values) == 1
                else [f"{DEFAULT_OUTPUT}_{number}" for number in range(len(values))]
            )
        return dict(zip(names, values, strict=True))


def _get_backend(model: Any) -> str:
    """Return the backend of a model's Keras, such as "tensorflow" or "jax"."""
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(model, keras.layers.Layer):
        return str(keras.backend.backend())
    return "tensorflow"


def _get_input_structure(model: Any) -> Any:
    """Return the nest of a model's symbolic inputs; None if the model declares no inputs."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return None
    try:
        return model.input
    except (AttributeError, RuntimeError, ValueError):
        # Use `inputs` and not `input`, which a sequential model of Keras 3 lacks until its first
        # call.
        return inputs[0] if len(inputs) == 1 else inputs


def _to_spec(tensor: Any) -> Any:
    return tf.TensorSpec(tensor.shape, tensor.dtype)
