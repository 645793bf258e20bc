"""Every optimizer, with its options, trains on two cores as in model.fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.keras import models
from trainer import CrossShardOptimizer, to_keras

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

_BOTH = {
    "SGD nesterov": lambda o: o.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam amsgrad": lambda o: o.Adam(0.01, amsgrad=True, global_clipnorm=0.1),
    "AdamW": lambda o: o.AdamW(o.schedules.CosineDecay(0.01, 4), weight_decay=0.1),
    "RMSprop centered": lambda o: o.RMSprop(0.01, momentum=0.5, centered=True, clipvalue=0.01),
    "Adagrad": lambda o: o.Adagrad(o.schedules.ExponentialDecay(0.1, 2, 0.5)),
    "Adadelta": lambda o: o.Adadelta(0.5),
    "Adamax": lambda o: o.Adamax(0.01, clipnorm=0.1),
    "Nadam": lambda o: o.Nadam(0.01),
    "Ftrl": lambda o: o.Ftrl(0.05, l1_regularization_strength=0.01),
    "ema_overwrite_frequency": lambda o: o.SGD(0.1, use_ema=True, ema_overwrite_frequency=2),
}
_KERAS_3 = {
    "gradient_accumulation_steps": lambda o: o.Adam(0.01, gradient_accumulation_steps=2),
    "loss_scale_factor": lambda o: o.SGD(0.1, loss_scale_factor=8.0),
}
_LEGACY = {
    "SGD": lambda o: o.SGD(0.1, momentum=0.9, nesterov=True, decay=0.1),
    "Adam": lambda o: o.Adam(0.01, clipnorm=0.1),
    "RMSprop": lambda o: o.RMSprop(0.01, momentum=0.5, centered=True),
    "Adagrad": lambda o: o.Adagrad(0.1),
    "Adadelta": lambda o: o.Adadelta(0.5),
    "Adamax": lambda o: o.Adamax(0.01),
    "Nadam": lambda o: o.Nadam(0.01),
    "Ftrl": lambda o: o.Ftrl(0.05),
}
_KERAS, _TF_KERAS = models.PACKAGES
_ALL = [
    *(
        pytest.param(_KERAS, _KERAS.optimizers, make_optimizer, id=f"keras {name}")
        for name, make_optimizer in {**_BOTH, **_KERAS_3}.items()
    ),
    *(
        pytest.param(_TF_KERAS, _TF_KERAS.optimizers, make_optimizer, id=f"tf_keras {name}")
        for name, make_optimizer in _BOTH.items()
    ),
    *(
        pytest.param(_TF_KERAS, _TF_KERAS.optimizers.legacy, make_optimizer, id=f"legacy {name}")
        for name, make_optimizer in _LEGACY.items()
    ),
]


@pytest.mark.parametrize(("package", "optimizers", "make_optimizer"), _ALL)
def test_two_cores_make_the_steps_of_fit(
    package: Any, optimizers: Any, make_optimizer: Any, tmp_path: Path
) -> None:
    fitted = _build_layer(package, make_optimizer(optimizers))
    is_nadam = isinstance(fitted.optimizer, _TF_KERAS.optimizers.Nadam)
    if is_nadam:
        # Let fit trace the step, and create the variables first: Nadam's steps depend on both.
        fitted.optimizer.build(fitted.trainable_variables)
    models.fit_epoch(package, fitted, _four_batches, eagerly=not is_nadam)
    model = _build_layer(package, make_optimizer(optimizers))
    estimator = models.train_epoch(model, tmp_path, 2, _four_batches)
    models.assert_same_values(to_keras(estimator), fitted)


def _build_layer(package: Any, optimizer: Any) -> Any:
    """Build a model of one layer: a kernel and a bias, from whose gradients norms are computed."""
    model = package.Sequential([package.layers.Input((4,)), package.layers.Dense(3)])
    return models.with_weights(models.compiled_model(package, model, optimizer))


def _four_batches(rows: int = models.ROWS) -> Any:
    """Return batches for two accumulations, copies of averages or changes of the rate."""
    return models.batches(models.X[: 4 * models.ROWS], models.Y[: 4 * models.ROWS], rows=rows)


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: tf.compat.v1.train.AdamOptimizer(0.05),
        lambda: CrossShardOptimizer(tf.compat.v1.train.MomentumOptimizer(0.05, 0.9)),
    ],
    ids=["adam", "wrapped"],
)
def test_an_optimizer_of_tensorflow_1_makes_the_steps_of_fit(
    make_optimizer: Any, tmp_path: Path
) -> None:
    fitted = models.dense(_TF_KERAS, make_optimizer())
    models.fit_epoch(_TF_KERAS, fitted)
    estimator = models.train_epoch(models.dense(_TF_KERAS, make_optimizer()), tmp_path, cores=2)
    # The names of the state contain no counter of the process.
    (slot, *_) = (name for name in estimator.get_variable_names() if "dense_1/kernel/" in name)
    assert slot.startswith("optimizer/dense_1/kernel/m")
    for actual, desired in zip(
        to_keras(estimator).get_weights(), fitted.get_weights(), strict=True
    ):
        np.testing.assert_allclose(actual, desired, rtol=1e-5, atol=1e-6)


def test_a_cross_shard_optimizer_of_tensorflow_makes_the_steps_of_its_optimizer(
    tmp_path: Path,
) -> None:
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.05, 0.9)
    fitted = models.dense(_TF_KERAS, tf.compat.v1.train.MomentumOptimizer(0.05, 0.9))
    models.fit_epoch(_TF_KERAS, fitted)
    model = models.dense(_TF_KERAS, tf.compat.v1.tpu.CrossShardOptimizer(optimizer))
    estimator = models.train_epoch(model, tmp_path, cores=2)
    for actual, desired in zip(
        to_keras(estimator).get_weights(), fitted.get_weights(), strict=True
    ):
        np.testing.assert_allclose(actual, desired, rtol=1e-5, atol=1e-6)
