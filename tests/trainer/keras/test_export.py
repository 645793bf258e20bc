"""An exported model has both metagraphs, with the model's inputs and outputs by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer import exports
from tests.trainer.keras import models
from tpuserve.errors import InvalidSetting
from trainer.keras import serving_input_receiver_fn

_both_kerases = pytest.mark.parametrize(
    "package", models.PACKAGES, ids=lambda package: package.__name__
)


@_both_kerases
@pytest.mark.numeric
def test_both_metagraphs_compute_the_outputs_of_the_model(
    package: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = package.layers.Input((4,), name="a"), package.layers.Input((2,), name="b")
    hidden = package.layers.BatchNormalization()(package.layers.Concatenate()([a, b]))
    outputs = [
        package.layers.Dense(2, name="left")(hidden),
        package.layers.Dense(1, name="right")(hidden),
    ]
    model = package.Model([a, b], outputs)
    model.compile("sgd", "mse")
    estimator = models.estimator(models.with_weights(model), tmp_path / "run")
    path = estimator.export_saved_model(str(tmp_path / "export")).decode()
    rows = {"a": models.X[:3], "b": models.X[3:6, :2]}
    expected = [np.asarray(output) for output in model([rows["a"], rows["b"]], training=False)]
    answer = exports.answers(Path(path), rows)
    assert set(answer) == {"left", "right"}
    assert "is not supported on the TPU" not in caplog.text
    np.testing.assert_allclose(answer["left"], expected[0], rtol=1e-5)
    np.testing.assert_allclose(answer["right"], expected[1], rtol=1e-5)


def test_an_input_of_strings_is_refused_by_its_name(tmp_path: Path) -> None:
    package = models.PACKAGES[1]
    x = package.layers.Input((), dtype="string", name="text")
    lengths = package.layers.Lambda(lambda s: tf.cast(tf.strings.length(s), tf.float32)[:, None])(x)
    model = models.compiled_model(package, package.Model(x, package.layers.Dense(3)(lengths)))
    estimator = models.estimator(model, tmp_path / "run")
    with pytest.raises(InvalidSetting, match=r"has string inputs \(text\), and a TPU"):
        estimator.export_saved_model(str(tmp_path / "export"))


@_both_kerases
def test_a_subclassed_model_needs_a_receiver_fn(package: Any) -> None:
    class Own(package.Model):
        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(InvalidSetting, match="Give export_saved_model a serving_input"):
        serving_input_receiver_fn(Own(name="own"))
