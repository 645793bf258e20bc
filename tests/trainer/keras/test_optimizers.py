"""Every optimizer, with its options, makes on two cores the steps that model.fit makes."""

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
_KERAS, _TF_KERAS = models.KINDS
_ALL = [
    *(
        pytest.param(_KERAS, _KERAS.optimizers, make, id=f"keras {name}")
        for name, make in {**_BOTH, **_KERAS_3}.items()
    ),
    *(
        pytest.param(_TF_KERAS, _TF_KERAS.optimizers, make, id=f"tf_keras {name}")
        for name, make in _BOTH.items()
    ),
    *(
        pytest.param(_TF_KERAS, _TF_KERAS.optimizers.legacy, make, id=f"legacy {name}")
        for name, make in _LEGACY.items()
    ),
]


@pytest.mark.parametrize(("kind", "optimizers", "make"), _ALL)
def test_two_cores_make_the_steps_of_fit(
    kind: Any, optimizers: Any, make: Any, tmp_path: Path
) -> None:
    fitted = models.dense(kind, make(optimizers))
    if isinstance(fitted.optimizer, _TF_KERAS.optimizers.Nadam):
        # Its steps depend on whether fit makes its variables, or finds them, and on tracing.
        fitted.optimizer.build(fitted.trainable_variables)
    else:
        # Sooner done than traced.
        fitted.run_eagerly = True
    models.fit(kind, fitted)
    made = models.train(models.dense(kind, make(optimizers)), tmp_path, cores=2)
    models.assert_same(to_keras(made), fitted)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.compat.v1.train.AdamOptimizer(0.05),
        lambda: CrossShardOptimizer(tf.compat.v1.train.MomentumOptimizer(0.05, 0.9)),
    ],
    ids=["adam", "wrapped"],
)
def test_an_optimizer_of_tensorflow_1_makes_the_steps_of_fit(make: Any, tmp_path: Path) -> None:
    fitted = models.dense(_TF_KERAS, make())
    models.fit(_TF_KERAS, fitted)
    made = models.train(models.dense(_TF_KERAS, make()), tmp_path, cores=2)
    # Its state has no numbers in its names that depend on what was made before.
    (slot, *_) = (each for each in made.get_variable_names() if "dense_1/kernel/" in each)
    assert slot.startswith("optimizer/dense_1/kernel/m")
    for one, two in zip(to_keras(made).get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
