"""A CNN on images like MNIST's: model.fit and the estimator make the same steps.

Different kernels sum in different orders, so the steps differ by rounding: about 1e-7 of a value in
each. The problem makes such a difference shrink and not grow from step to step. Its first loss is
that of guessing, about log(10); activations and pooling are smooth, so rounding never decides which
branch is taken; and the rates are small. Ten steps then differ by 3e-7 between SSE4.1, AVX-512 and
TensorFlow without oneDNN, a thirtieth of what the tests allow.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.keras import models
from trainer import to_keras

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

_random = np.random.RandomState(0)
_IMAGES = _random.rand(10 * 16, 28, 28, 1).astype("float32") - 0.5
_DIGITS = _random.randint(0, 10, 10 * 16).astype("int32")


def _batches(rows: int = 16) -> Any:
    return models.batches(_IMAGES, _DIGITS, rows=rows)


def _cnn(package: Any, optimizer: Any) -> Any:
    layers = package.layers
    model = package.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(8, 5, padding="same", activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(16, 5, padding="same", activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(32, activation="tanh"),
            layers.Dropout(0.0),
            layers.Dense(10),
        ]
    )
    models.with_weights(models.compiled_model(package, model, optimizer, metrics=["accuracy"]))
    # Divided by the root of the number of inputs, so that no activation saturates.
    model.set_weights([w / np.sqrt(max(1, np.prod(w.shape[:-1]))) for w in model.get_weights()])
    return model


# Compilation is slow, so only one of the cases is compiled. test_optimizers.py has all optimizers.
@pytest.mark.parametrize(
    ("package", "make_optimizer", "is_compiled"),
    [
        (models.PACKAGES[0], lambda o: o.SGD(0.01, momentum=0.9), True),
        (models.PACKAGES[1], lambda o: o.Adam(0.001), False),
    ],
    ids=["keras Momentum", "tf_keras Adam"],
)
def test_an_epoch_of_the_mnist_cnn_is_that_of_fit(
    package: Any, make_optimizer: Any, is_compiled: bool, tmp_path: Path
) -> None:
    def build_model() -> Any:
        return _cnn(package, make_optimizer(package.optimizers))

    fitted = build_model()
    expected = models.fit_epoch(package, fitted, _batches, eagerly=False)
    metrics = fitted.evaluate(_batches(), verbose=0, return_dict=True)
    for cores in (0, 4):
        model_dir = tmp_path / str(cores)
        estimator = models.estimator(
            build_model(), model_dir, use_tpu=cores > 0, train_batch_size=16
        )
        with models.emulated_tpu(cores, compiled=is_compiled):
            estimator.train(models.input_fn(_batches), steps=10)
            results = estimator.evaluate(models.input_fn(_batches))
        assert models.read_losses(model_dir) == pytest.approx(expected, rel=1e-5)
        assert {name: results[name] for name in metrics} == pytest.approx(metrics, rel=1e-5)
        models.assert_same_values(to_keras(estimator), fitted, 1e-5)
