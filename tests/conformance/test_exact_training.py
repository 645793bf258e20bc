"""Data parallelism is exact: each step has the same loss on any number of cores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.conformance.devices import CPU, Device, cores
from tests.trainer.programs import scalars
from trainer.demo import digits

v1 = tf.compat.v1

_STEPS = 50
_BATCH = 16
# Devices sum in different orders. The difference, about 1e-7 of a loss, must not grow in 50 steps:
# so activations and pooling are smooth (rounding decides which side of a ReLU or which maximum is
# taken where both are equal), and the rate is small.
_RATE = 0.01


def _model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Build the MNIST CNN with fewer filters, smooth activations and pooling, and no dropout."""
    image = tf.reshape(features["image"], [-1, 28, 28, 1])
    conv1 = v1.layers.conv2d(image, 8, 5, padding="same", activation=tf.nn.tanh)
    pool1 = v1.layers.average_pooling2d(conv1, 2, 2)
    conv2 = v1.layers.conv2d(pool1, 16, 5, padding="same", activation=tf.nn.tanh)
    pool2 = v1.layers.average_pooling2d(conv2, 2, 2)
    dense = v1.layers.dense(tf.reshape(pool2, [-1, 7 * 7 * 16]), 32, activation=tf.nn.tanh)
    logits = v1.layers.dense(dense, 10)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(_RATE))
    train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.fixture(scope="module")
def input_fn() -> Callable[..., Any]:
    training, _ = digits.load_digits()
    rows = _STEPS * _BATCH
    images = training.images[:rows].astype(np.float32) / 255
    labels = training.labels[:rows].astype(np.int32)

    def give(params: Any) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(({"image": images}, labels)).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    return give


def _losses(device: Device, input_fn: Callable[..., Any], model_dir: Path) -> np.ndarray[Any, Any]:
    with device.activate():
        estimator = device.estimator(
            _model_fn,
            model_dir,
            batch_size=_BATCH,
            tpu_config=trainer.TPUConfig(iterations_per_loop=1),
            save_summary_steps=1,
        )
        estimator.train(input_fn, max_steps=_STEPS)
    losses = scalars(model_dir)["loss"]
    assert sorted(losses) == list(range(1, _STEPS + 1))
    return np.array([losses[step] for step in sorted(losses)])


@pytest.fixture(scope="module")
def losses_of_cpu(
    input_fn: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> np.ndarray[Any, Any]:
    return _losses(CPU, input_fn, tmp_path_factory.mktemp("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "device",
    [cores(1, compiled=True), cores(8, compiled=True), cores(8)],
    ids=str,
)
@pytest.mark.numeric
def test_every_loss_is_the_cpus(
    device: Device,
    input_fn: Callable[..., Any],
    losses_of_cpu: np.ndarray[Any, Any],
    tmp_path: Path,
) -> None:
    losses = _losses(device, input_fn, tmp_path)
    np.testing.assert_allclose(losses, losses_of_cpu, rtol=1e-5, atol=0)


def test_the_losses_are_those_of_training(losses_of_cpu: np.ndarray[Any, Any]) -> None:
    # Losses that did not change would be equal on all devices whatever these computed. So check
    # that the losses fall, and that no two are equal.
    assert losses_of_cpu[-20:].mean() < losses_of_cpu[:20].mean() - 0.01
    assert len(np.unique(losses_of_cpu)) == _STEPS
