"""The models that the benchmarks of PJRT export, each with a CPU and a TPU metagraph."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.export import export


class Network(tf.Module):  # type: ignore[misc]
    """A network with random weights: takes x, returns y."""

    def __init__(self, shape: Sequence[int], apply: Callable[..., Any]) -> None:
        """Create the variables.

        Args:
          shape: the shape of one row of x.
          apply: takes the function that returns the next variable by its shape, and x; returns y.
        """
        super().__init__()
        self._apply = apply
        self._weights: list[Any] = []
        self._random = np.random.default_rng(1)
        apply(self._make_weight, tf.zeros([1, *shape]))

    def __call__(self, x: Any) -> dict[str, Any]:
        """Apply the network to a batch."""
        weights = iter(self._weights)
        return {"y": self._apply(lambda *shape: next(weights), x)}

    def _make_weight(self, *shape: int) -> Any:
        scale = float(np.prod(shape[:-1])) ** -0.5
        value = self._random.normal(scale=scale, size=shape).astype(np.float32)
        self._weights.append(tf.Variable(value))
        return self._weights[-1]


def cnn(weight: Callable[..., Any], x: Any) -> Any:
    """Apply two convolutions with max pooling and two dense layers, as for MNIST."""
    for inputs, filters in ((1, 32), (32, 64)):
        x = tf.nn.relu(tf.nn.conv2d(x, weight(5, 5, inputs, filters), 1, "SAME"))
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    x = tf.nn.relu(tf.reshape(x, [-1, 7 * 7 * 64]) @ weight(7 * 7 * 64, 128))
    return x @ weight(128, 10)


def mlp(weight: Callable[..., Any], x: Any) -> Any:
    """Apply three dense layers."""
    for inputs, units in ((784, 512), (512, 512)):
        x = tf.nn.relu(x @ weight(inputs, units))
    return tf.nn.softmax(x @ weight(512, 10))


def transformer(weight: Callable[..., Any], x: Any) -> Any:
    """Apply two encoder layers of width 128 with four heads to 32 positions."""
    for _ in range(2):
        heads = [
            tf.reshape(x @ weight(128, 128), [-1, 32, 4, 32]) for _ in ("query", "key", "value")
        ]
        scores = tf.nn.softmax(tf.einsum("bqhd,bkhd->bhqk", *heads[:2]) / 32**0.5)
        mixed = tf.reshape(tf.einsum("bhqk,bkhd->bqhd", scores, heads[2]), [-1, 32, 128])
        x += mixed @ weight(128, 128)
        x -= tf.reduce_mean(x, -1, keepdims=True)
        x += tf.nn.gelu(x @ weight(128, 512)) @ weight(512, 128)
    return x


def add_one(weight: Callable[..., Any], x: Any) -> Any:
    """Add a variable of one to x, which takes hardly any time."""
    return x + 0 * weight(1) + 1


MODELS: Mapping[str, tuple[Sequence[int], Callable[..., Any]]] = {
    "cnn": ([28, 28, 1], cnn),
    "mlp": ([784], mlp),
    "transformer": ([32, 128], transformer),
}
"""Name → the shape of a row, and the function."""


def save(directory: Path, shape: Sequence[int], apply: Callable[..., Any]) -> Path:
    """Export a network with both metagraphs; return the directory of the version."""
    signature = {"x": tf.TensorSpec([None, *shape], tf.float32)}
    return Path(export(Network(shape, apply), signature, directory))
