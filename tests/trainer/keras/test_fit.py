"""The MNIST CNN: model.fit, the estimator on the CPU and on four cores make the same steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.keras import models
from trainer import to_keras

pytestmark = pytest.mark.slow

_random = np.random.RandomState(0)
_IMAGES = _random.rand(10 * 16, 28, 28, 1).astype("float32") - 0.5
_DIGITS = _random.randint(0, 10, 10 * 16).astype("int32")

_OPTIMIZERS = {
    "SGD": lambda kind: kind.optimizers.SGD(0.05),
    "Momentum": lambda kind: kind.optimizers.SGD(0.05, momentum=0.9),
    "Adam": lambda kind: kind.optimizers.Adam(0.001),
}


def _batches(rows: int = 16) -> Any:
    return models.batches(_IMAGES, _DIGITS, rows=rows)


def _cnn(kind: Any, optimizer: Any) -> Any:
    layers = kind.layers
    model = kind.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(8, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dropout(0.0),
            layers.Dense(10),
        ]
    )
    return models.with_weights(models.compiled_model(kind, model, optimizer, metrics=["accuracy"]))


@pytest.mark.parametrize("optimizer", _OPTIMIZERS.values(), ids=_OPTIMIZERS)
@pytest.mark.parametrize("kind", models.KINDS, ids=lambda kind: kind.__name__)
def test_an_epoch_of_the_mnist_cnn_is_that_of_fit(
    kind: Any, optimizer: Any, tmp_path: Path
) -> None:
    fitted = _cnn(kind, optimizer(kind))
    expected = models.fit(kind, fitted, _batches)
    metrics = fitted.evaluate(_batches(), verbose=0, return_dict=True)
    for cores in (0, 4):
        place = tmp_path / str(cores)
        made = models.estimator(
            _cnn(kind, optimizer(kind)), place, use_tpu=cores > 0, train_batch_size=16
        )
        # Compiling takes its time, and is the same whatever the optimizer and the kind.
        is_compiled = optimizer is _OPTIMIZERS["Momentum"] and kind is models.KINDS[0]
        with models.emulated(cores, compiled=is_compiled):
            made.train(models.of(_batches), steps=10)
            found = made.evaluate(models.of(_batches))
        assert models.losses(place) == pytest.approx(expected, rel=1e-4)
        assert {name: found[name] for name in metrics} == pytest.approx(metrics, rel=1e-4)
        models.assert_same(to_keras(made), fitted, 1e-4)
