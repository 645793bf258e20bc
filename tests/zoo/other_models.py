"""Models without Keras layers: a JAX model, a frozen graph of TensorFlow 1, and decision trees."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.zoo.zoo_model import ZooModel, normal

v1 = tf.compat.v1

_FEATURES = 16


def _random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _write_jax(directory: Path) -> None:
    import jax
    from jax.experimental import jax2tf

    def predict(parameters: Any, x: Any) -> Any:
        hidden = jax.nn.gelu(x @ parameters["hidden"])
        return {"logits": hidden @ parameters["output"]}

    module = tf.Module()
    module.parameters = tf.nest.map_structure(
        tf.Variable, {"hidden": _random(0, _FEATURES, 32), "output": _random(1, 32, 4)}
    )
    converted = jax2tf.convert(
        predict,
        polymorphic_shapes=[None, "(rows, ...)"],
        native_serialization_platforms=("cpu", "tpu"),
    )
    module.predict = tf.function(
        lambda x: converted(module.parameters, x),
        autograph=False,
        input_signature=[tf.TensorSpec([None, _FEATURES], tf.float32, name="x")],
    )
    tf.saved_model.save(module, str(directory), signatures=module.predict)


def _write_frozen(directory: Path) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, _FEATURES], name="x")
        # Write the loop as TensorFlow 1 does: Enter, Switch, Merge, NextIteration, Exit.
        v1.disable_control_flow_v2()
        try:
            _, state = tf.while_loop(
                lambda index, _: index < 3,
                lambda index, state: (
                    index + 1,
                    tf.tanh(state @ _random(0, _FEATURES, _FEATURES) / 4),
                ),
                (tf.constant(0), x),
            )
        finally:
            v1.enable_control_flow_v2()
        logits = tf.matmul(state, _random(1, _FEATURES, 4), name="logits")
        v1.saved_model.simple_save(session, str(directory), {"x": x}, {"logits": logits})


class _Forest(tf.Module):
    """Complete binary trees. A row walks down each tree by comparing one feature at each node."""

    _TREES = 20
    _DEPTH = 4

    def __init__(self) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        inner, leaves = 2**self._DEPTH - 1, 2**self._DEPTH
        self.feature = tf.constant(random.integers(0, _FEATURES, [self._TREES, inner], np.int32))
        self.threshold = tf.Variable(_random(1, self._TREES, inner))
        self.leaf = tf.Variable(_random(2, self._TREES, leaves))

    @tf.function(input_signature=[tf.TensorSpec([None, _FEATURES], tf.float32, name="x")])
    def predict(self, x: Any) -> dict[str, Any]:
        """Return the sum of the leaves that each row reaches in the trees, float32 [rows]."""
        node = tf.zeros([tf.shape(x)[0], self._TREES], tf.int32)
        trees = tf.range(self._TREES)[None] + tf.zeros_like(node)
        for _ in range(self._DEPTH):
            at = tf.stack([trees, node], -1)
            value = tf.gather(x, tf.gather_nd(self.feature, at), batch_dims=1)
            node = 2 * node + 1 + tf.cast(value > tf.gather_nd(self.threshold, at), tf.int32)
        leaf = node - (2**self._DEPTH - 1)
        return {"score": tf.reduce_sum(tf.gather_nd(self.leaf, tf.stack([trees, leaf], -1)), -1)}


def _write_forest(directory: Path) -> None:
    module = _Forest()
    tf.saved_model.save(module, str(directory), signatures=module.predict)


FROZEN = ZooModel(
    "frozen graph with a loop",
    "TensorFlow 1, `simple_save`",
    _write_frozen,
    normal("x", _FEATURES),
)

ALL = (
    ZooModel("jax2tf", "JAX, `tf.saved_model.save`", _write_jax, normal("x", _FEATURES)),
    FROZEN,
    ZooModel("boosted trees", "`tf.saved_model.save`", _write_forest, normal("x", _FEATURES)),
)
