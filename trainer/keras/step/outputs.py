"""Transfers the outputs of a Keras model to its metrics, which run in another graph.

The masks and logits that belong to the outputs are transferred too, because metrics use them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer.keras.model.adapter import KerasAdapter
from trainer.keras_internals import attach_to_tensor, find_private_attribute

# Type of an activation's op → the activation function. If such an op computes an output, Keras's
# crossentropies use the op's input, the logits, instead of the output.
_ACTIVATIONS = {"Sigmoid": tf.math.sigmoid, "Softmax": tf.nn.softmax}


class OutputCodec:
    """Encodes a model's outputs as plain tensors, and decodes them in the graph of the metrics.

    A metric uses more than the values of an output. A mask can exclude some values. A crossentropy
    computes with logits instead of probabilities if it finds logits.
    """

    def __init__(self, adapter: KerasAdapter) -> None:
        self._adapter = adapter
        self._structure: Any = None
        # For each flattened output: (the type of the op that computes the output, if it is in
        # _ACTIVATIONS, else None; whether Keras has attached logits to the output).
        self._activations: list[tuple[str | None, bool]] = []

    def encode(self, y_pred: Any) -> list[dict[str, Any]]:
        """Convert the outputs of a model to plain tensors.

        Returns:
          A dict of tensors for each flattened output.
        """
        self._structure = tf.nest.map_structure(lambda _: None, y_pred)
        outputs = tf.nest.flatten(y_pred)
        self._activations = []
        encoded = []
        for output in outputs:
            logits = find_private_attribute(output, "_keras_logits")
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
        """Rebuild the outputs of the model, with masks and logits, in the default graph."""
        outputs = []
        for parts, (activation, has_logits) in zip(encoded, self._activations, strict=True):
            output = _ACTIVATIONS[activation](parts["logits"]) if activation else parts["values"]
            if has_logits:
                attach_to_tensor(output, "_keras_logits", parts["logits"])
            if "mask" in parts:
                self._adapter.set_mask(output, parts["mask"])
            outputs.append(output)
        return tf.nest.pack_sequence_as(self._structure, outputs)
