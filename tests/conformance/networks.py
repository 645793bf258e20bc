"""Models of different kinds. Training them on replicas must give the same result as on the CPU."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

import trainer

v1 = tf.compat.v1
ROWS = 8
FEATURES = 4
# Adam's epsilon, which is added to the size of the gradient that a step is divided by. With it, a
# rounding error of 1e-8 in a gradient of any size changes a weight by at most 0.05 * 1e-8 / 1e-3.
_EPSILON = 1e-3

_random = np.random.default_rng(0)
_X = _random.normal(size=[5 * ROWS, FEATURES]).astype(np.float32)
_IDS = _random.integers(0, 11, [5 * ROWS, 3], np.int32)
_Y = _random.normal(size=[5 * ROWS, 1]).astype(np.float32)


@dataclass(frozen=True)
class Network:
    """A model and the way it is trained.

    Attributes:
      name: the name of the test.
      loss: takes features and labels; returns the mean loss over the rows.
      train: takes the loss; returns the op that runs a training step.
      is_alike: whether every replica must get the same rows, because the result depends on how the
        rows are divided among replicas, as with batch normalization.
      tolerance: the largest difference of a variable's values from those on the CPU. It is
        multiplied by the variable's largest absolute value if that is above 1.
    """

    name: str
    loss: Callable[[Any, Any], Any]
    train: Callable[[Any], Any] = field(default=lambda loss: _minimize(loss))
    is_alike: bool = False
    tolerance: float = 1e-5

    def model_fn(self, features: Any, labels: Any, mode: str) -> Any:
        """Return the spec of the model; the model_fn of a TPUEstimator."""
        loss = self.loss(features, labels)
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=self.train(loss))

    def input_fn(self, params: Any) -> Any:
        """Return a dataset that repeats five batches."""
        rows = np.arange(len(_X))
        if self.is_alike:
            # A batch is two rows, repeated four times.
            rows = rows // ROWS * ROWS + rows % 2
        features = {"x": _X[rows], "ids": _IDS[rows]}
        dataset = tf.data.Dataset.from_tensor_slices((features, _Y[rows])).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)


def _minimize(loss: Any, optimizer: Any = None) -> Any:
    optimizer = trainer.CrossShardOptimizer(optimizer or v1.train.GradientDescentOptimizer(0.1))
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return optimizer.minimize(loss, global_step=v1.train.get_global_step())


def _with(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda loss: _minimize(loss, make())


def _squared_error(y: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.math.squared_difference(y, labels))


def _perceptron(features: Any, labels: Any) -> Any:
    hidden = v1.layers.dense(features["x"], 5, activation=tf.nn.tanh)
    return _squared_error(v1.layers.dense(hidden, 1), labels)


def _batch_norm(features: Any, labels: Any) -> Any:
    hidden = v1.layers.batch_normalization(
        v1.layers.dense(features["x"], 5), training=True, momentum=0.9
    )
    return _squared_error(v1.layers.dense(hidden, 1), labels)


def _cross_replica_norm(features: Any, labels: Any) -> Any:
    return _squared_error(
        v1.layers.dense(_normalize_rows(v1.layers.dense(features["x"], 5)), 1), labels
    )


def _normalize_rows(x: Any) -> Any:
    """Normalise x by the mean and the variance over the rows of all replicas."""
    rows = trainer.cross_replica_sum(tf.cast(tf.shape(x)[0], tf.float32))
    mean = trainer.cross_replica_sum(tf.reduce_sum(x, 0)) / rows
    variance = trainer.cross_replica_sum(tf.reduce_sum((x - mean) ** 2, 0)) / rows
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def _embedding(features: Any, labels: Any) -> Any:
    table = v1.get_variable("table", [11, 3], initializer=v1.random_normal_initializer())
    words = tf.reduce_mean(tf.gather(table, features["ids"]), axis=1)
    return _squared_error(v1.layers.dense(words, 1), labels)


def _branches(features: Any, labels: Any) -> Any:
    """Branch on a condition that differs between replicas, and on one that does not."""
    x = features["x"]
    x = tf.cond(tf.reduce_sum(x[:1]) > 0, lambda: 2 * x, lambda: tf.tanh(x))
    step = v1.train.get_global_step()
    x = tf.cond(tf.equal(step % 2, 0), lambda: x, lambda: x + 0.5)
    return _squared_error(v1.layers.dense(x, 1), labels)


def _loop(features: Any, labels: Any) -> Any:
    w = v1.get_variable("w", [FEATURES, FEATURES], initializer=v1.random_normal_initializer(0, 0.3))
    _, x = tf.while_loop(
        lambda n, _: n < 3,
        lambda n, x: (n + 1, tf.tanh(x @ w)),
        [tf.constant(0), features["x"]],
        maximum_iterations=3,
    )
    return _squared_error(tf.reduce_sum(x, 1, keepdims=True), labels)


def _recurrent(features: Any, labels: Any) -> Any:
    return _squared_error(v1.layers.dense(_last_output(features), 1), labels)


def _normed_recurrent(features: Any, labels: Any) -> Any:
    """Normalise the result of a loop over all replicas, which communicate before its gradient."""
    return _squared_error(v1.layers.dense(_normalize_rows(_last_output(features)), 1), labels)


def _last_output(features: Any) -> Any:
    # The embeddings of three words, [rows, 3, 3].
    table = v1.get_variable("table", [11, 3], initializer=v1.random_normal_initializer())
    words = tf.gather(table, features["ids"])
    with warnings.catch_warnings():
        # Ignore TensorFlow's warning that advises to use Keras.
        warnings.simplefilter("ignore")
        cell = v1.nn.rnn_cell.BasicLSTMCell(4)
        outputs, _ = v1.nn.dynamic_rnn(cell, words, dtype=tf.float32)
    return outputs[:, -1]


def _bfloat16(features: Any, labels: Any) -> Any:
    with v1.tpu.bfloat16_scope():
        hidden = v1.layers.dense(tf.cast(features["x"], tf.bfloat16), 5, activation=tf.nn.tanh)
        y = v1.layers.dense(hidden, 1)
    return _squared_error(tf.cast(y, tf.float32), labels)


def _keras(features: Any, labels: Any) -> Any:
    import tf_keras

    hidden = tf_keras.layers.Dense(5, activation="tanh", name="hidden")(features["x"])
    return _squared_error(tf_keras.layers.Dense(1, name="output")(hidden), labels)


def _minimize_clipped(loss: Any) -> Any:
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    crossed = trainer.CrossShardOptimizer(optimizer)
    gradients, variables = zip(*crossed.compute_gradients(loss), strict=True)
    sums = [trainer.cross_replica_sum(gradient) for gradient in gradients]
    clipped, _ = tf.clip_by_global_norm(sums, 0.05)
    pairs = zip(clipped, variables, strict=True)
    return optimizer.apply_gradients(pairs, v1.train.get_global_step())


def _minimize_accumulated(loss: Any) -> Any:
    """Add up the gradients of two steps, and apply their mean in every second step."""
    optimizer = trainer.CrossShardOptimizer(v1.train.AdamOptimizer(0.05, epsilon=_EPSILON))
    step = v1.train.get_global_step()
    pairs = optimizer.compute_gradients(loss)
    sums = [
        v1.get_variable(
            f"sum_{number}", gradient.shape, trainable=False, initializer=v1.zeros_initializer()
        )
        for number, (_, gradient) in enumerate(pairs)
    ]
    # A variable has the same value on all replicas, so add the sum over all replicas to it.
    added = [
        gradient_sum.assign_add(trainer.cross_replica_sum(gradient))
        for gradient_sum, (gradient, _) in zip(sums, pairs, strict=True)
    ]

    def apply() -> Any:
        variables = [variable for _, variable in pairs]
        totals = [
            gradient_sum / trainer.cross_replica_sum(tf.constant(2.0)) for gradient_sum in sums
        ]
        with tf.control_dependencies(
            [optimizer.apply_gradients(list(zip(totals, variables, strict=True)))]
        ):
            resets = [gradient_sum.assign(tf.zeros_like(gradient_sum)) for gradient_sum in sums]
        with tf.control_dependencies(resets):
            return tf.constant(True)

    with tf.control_dependencies(added):
        applied = tf.cond(tf.equal(step % 2, 1), apply, lambda: tf.constant(False))
    with tf.control_dependencies([applied]):
        return step.assign_add(1)


def _decaying_optimizer() -> Any:
    step = v1.train.get_global_step()
    rate = v1.train.exponential_decay(0.1, step, 2, 0.5, staircase=True)
    return v1.train.GradientDescentOptimizer(rate)


def _minimize_by_tensorflow(loss: Any) -> Any:
    optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
    return optimizer.minimize(loss, global_step=v1.train.get_global_step())


ALL = [
    Network("momentum", _perceptron, _with(lambda: v1.train.MomentumOptimizer(0.1, 0.9))),
    Network("adam", _perceptron, _with(lambda: v1.train.AdamOptimizer(0.05, epsilon=_EPSILON))),
    Network("rmsprop", _perceptron, _with(lambda: v1.train.RMSPropOptimizer(0.01))),
    Network("decayed_rate", _perceptron, _with(_decaying_optimizer)),
    Network("clipped_gradients", _perceptron, _minimize_clipped),
    Network("accumulated_gradients", _perceptron, _minimize_accumulated),
    Network("optimizer_of_tensorflow", _perceptron, _minimize_by_tensorflow),
    Network("batch_norm", _batch_norm, is_alike=True),
    Network("cross_replica_norm", _cross_replica_norm),
    Network("embedding", _embedding, _with(lambda: v1.train.AdamOptimizer(0.05, epsilon=_EPSILON))),
    Network("branches", _branches, is_alike=True),
    Network("while_loop", _loop),
    Network("dynamic_rnn", _recurrent),
    Network("normed_rnn", _normed_recurrent),
    # A bfloat16 has 8 significant bits, and each replica rounds the sum of its own rows.
    Network("bfloat16", _bfloat16, tolerance=2e-2),
    Network("keras_layers", _keras),
]
