"""Transfers a model's outputs to its metrics, with the masks and logits that metrics look for."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer.keras.model.adapter import KerasAdapter

# Activations as type of op → function. If one of these ops computes an output, Keras's
# crossentropies use the op's input, the logits, instead of the output.
_ACTIVATIONS = {"Sigmoid": tf.math.sigmoid, "Softmax": tf.nn.softmax}


class OutputCodec:
    """Converts a model's outputs to plain tensors, and back in the graph of the metrics.

    A metric reads more than the values of an output. A mask says which positions count. A
    crossentropy computes with logits instead of probabilities if it finds them: in the attribute
    `_keras_logits`, which Keras's activations set, or as the input of the op that computes the
    output. A tensor that is passed to another graph has neither.

    Source of the rule for logits: `_get_logits` of keras/src/backend/tensorflow/nn.py and of
    tf_keras/src/backend.py.
    """

    def __init__(self, adapter: KerasAdapter) -> None:
        """Store the adapter for the model's Keras; no output is encoded yet."""
        self._adapter = adapter
        self._structure: Any = None
        # For each flattened output: the type of its activation's op if in _ACTIVATIONS, else None;
        # and whether Keras has attached logits to the output.
        self._activations: list[tuple[str | None, bool]] = []

    def encode(self, y_pred: Any) -> list[dict[str, Any]]:
        """Convert the outputs of a model to plain tensors.

        Args:
          y_pred: the outputs, in the graph in which the model is called.

        Returns:
          For each flattened output a dict. If a sigmoid or softmax computes the output, the dict
            has the "logits", the argument of the sigmoid or softmax, from which `decode` computes
            the output. Otherwise, the dict has the "values" of the output, and "logits" too if
            Keras has attached logits to it. If the output has a mask, the dict has it as "mask".
        """
        self._structure = tf.nest.map_structure(lambda _: None, y_pred)
        outputs = tf.nest.flatten(y_pred)
        self._activations = []
        encoded = []
        for output in outputs:
            logits = getattr(output, "_keras_logits", None)
            activation = output.op.type if output.op.type in _ACTIVATIONS else None
            self._activations.append((activation, logits is not None))
            parts = {
                "values": None if activation else output,
                "logits": output.op.inputs[0] if activation else logits,
                "mask": self._adapter.get_mask(output),
            }
            encoded.append({name: part for name, part in parts.items() if part is not None})
        return encoded

    def decode(self, encoded: Sequence[Mapping[str, Any]]) -> Any:
        """Rebuild the outputs, in the structure that the model returned, from `encode`'s result."""
        outputs = []
        for parts, (activation, has_logits) in zip(encoded, self._activations, strict=True):
            output = _ACTIVATIONS[activation](parts["logits"]) if activation else parts["values"]
            if has_logits:
                output._keras_logits = parts["logits"]
            if "mask" in parts:
                self._adapter.set_mask(output, parts["mask"])
            outputs.append(output)
        return tf.nest.pack_sequence_as(self._structure, outputs)
