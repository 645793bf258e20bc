"""Records the gradients of embedding activations when model_fn's optimizer computes gradients.

Activations are the rows that a lookup returns, combined for each example.
"""

import logging
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

logger = logging.getLogger("tensorflow.trainer")

_ANCHOR = "embedding_gradient_anchor"


class GradientCapture:
    """Records the gradients of some tensors when model_fn's optimizer computes gradients.

    An optimizer computes gradients with respect to the trainable variables, and the embedding
    tables are not trainable variables.
    """

    def __init__(self) -> None:
        with tf.init_scope():
            self._anchor = tf.compat.v1.Variable(
                [0.0],
                trainable=True,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                use_resource=True,
                name=_ANCHOR,
            )
        self._gradients: dict[str, Any] = {}

    def watch(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of each tensor; the gradients of the copies are recorded.

        The model must use the copies in place of the tensors.
        """
        anchor = self._anchor.read_value()
        return {name: self._watch(name, tensor, anchor) for name, tensor in tensors.items()}

    def _watch(self, name: str, tensor: Any, anchor: Any) -> Any:
        @tf.custom_gradient
        def identity(tensor: Any, anchor: Any) -> tuple[Any, Any]:
            def record(gradient: Any) -> tuple[Any, Any]:
                # If model_fn computes gradients several times, overwrite the earlier gradients.
                self._gradients[name] = gradient
                return tf.zeros_like(tensor), self._anchor_gradient(anchor)

            return tf.identity(tensor), record

        return identity(tensor, anchor)

    def _anchor_gradient(self, anchor: Any) -> Any:
        # If the anchor is the only trainable variable, give it the gradient 0. Optimizers raise an
        # error if no variable has a gradient.
        others = [
            variable
            for variable in tf.compat.v1.trainable_variables()
            if variable is not self._anchor
        ]
        return None if others else tf.zeros_like(anchor)

    def gradients(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recorded gradients of tensors, by name; zeros for a tensor without gradient.

        A tensor has no gradient if the loss does not depend on it.
        """
        unused = [name for name in tensors if name not in self._gradients]
        if unused:
            logger.warning(
                "the loss does not depend on the embeddings of %s, or model_fn computes no "
                "gradients: their gradients are 0",
                ", ".join(map(repr, unused)),
            )
        return {
            name: tf.convert_to_tensor(self._gradients[name])
            if name in self._gradients
            else tf.zeros_like(tensor)
            for name, tensor in tensors.items()
        }
