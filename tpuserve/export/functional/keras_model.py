"""A Keras model or layer, of tf_keras or of Keras 3, as something to export."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export.functional.callable_model import DEFAULT_OUTPUT, CallableModel

# Whoever has a model has imported its package; the other one need not be there.
_PACKAGES = ("tf_keras", "keras")


def is_keras(model: Any) -> bool:
    """Whether it is a layer or a model, which is a layer, of either Keras."""
    packages = [sys.modules[each] for each in _PACKAGES if each in sys.modules]
    return any(isinstance(model, each.layers.Layer) for each in packages)


class KerasModel(CallableModel):
    """A Keras model or layer, called for inference."""

    def __init__(self, function: Any, title: str) -> None:
        """Takes a model or a layer.

        Raises:
          ExportError: its Keras does not compute with TensorFlow.
        """
        super().__init__(function, title)
        backend = _backend_of(function)
        if backend != "tensorflow":
            raise ExportError(
                f"{title} computes with {backend}. Set KERAS_BACKEND=tensorflow before Keras is "
                f"imported, and load the model again."
            )
        self._inputs = _structure(function)

    def own_specs(self) -> Mapping[str, Any] | None:
        """The inputs of a model that was built from them: a functional or sequential one."""
        if self._inputs is None:
            return None
        leaves = tf.nest.flatten(self._inputs)
        return dict(zip(self._aliases(), map(_spec, leaves), strict=True))

    def check_aliases(self, signature_name: str, aliases: Sequence[str]) -> None:
        """Refuses other inputs than the model has; a single one may have any name."""
        if self._inputs is None or (len(aliases) == 1 and len(self._aliases()) == 1):
            return
        if set(aliases) != set(self._aliases()):
            raise InvalidSetting(
                f"signature {signature_name!r} has the inputs {sorted(aliases)}, and {self.title} "
                f"takes {sorted(self._aliases())}. Give both the same names."
            )

    def _aliases(self) -> list[str]:
        if isinstance(self._inputs, Mapping):
            # The order in which tf.nest flattens them.
            return sorted(self._inputs)
        return [each.name.partition(":")[0] for each in tf.nest.flatten(self._inputs)]

    def _returned(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> Any:
        del use_tpu
        return self.function(self._structured(inputs), **self._for_inference())

    def _structured(self, inputs: Mapping[str, Any]) -> Any:
        if self._inputs is None:
            (alias, *others) = inputs
            return dict(inputs) if others else inputs[alias]
        if len(inputs) == 1:
            return tf.nest.pack_sequence_as(self._inputs, list(inputs.values()))
        return tf.nest.pack_sequence_as(self._inputs, [inputs[each] for each in self._aliases()])

    def _for_inference(self) -> dict[str, bool]:
        # Some layers' `call` does not take it.
        takes = getattr(self.function, "_call_has_training_arg", None)
        if takes is None:
            takes = getattr(self.function, "_expects_training_arg", True)
        return {"training": False} if takes else {}

    def _by_alias(self, returned: Any) -> Mapping[Any, Any]:
        if isinstance(returned, Mapping):
            return returned
        values = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        # A sequential model of Keras 3 has them in the functional one that it is made of.
        functional = getattr(self.function, "_functional", None)
        names = getattr(functional or self.function, "output_names", None) or []
        if len(names) != len(values):
            names = (
                [DEFAULT_OUTPUT]
                if len(values) == 1
                else [f"{DEFAULT_OUTPUT}_{n}" for n in range(len(values))]
            )
        return dict(zip(names, values, strict=True))


def _backend_of(model: Any) -> str:
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(model, keras.layers.Layer):
        return str(keras.backend.backend())
    return "tensorflow"


def _structure(model: Any) -> Any:
    """The model's inputs as it is called with them; None if it was not built from any."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return None
    try:
        return model.input
    except (AttributeError, RuntimeError, ValueError):
        # A sequential model of Keras 3 that was never called.
        return inputs[0] if len(inputs) == 1 else inputs


def _spec(tensor: Any) -> Any:
    return tf.TensorSpec(tensor.shape, tensor.dtype)
