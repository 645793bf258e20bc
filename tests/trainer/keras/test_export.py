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

pytestmark = pytest.mark.slow

_each_kind = pytest.mark.parametrize("kind", models.KINDS, ids=lambda kind: kind.__name__)


@_each_kind
@pytest.mark.numeric
def test_both_metagraphs_answer_what_the_model_does(
    kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = kind.layers.Input((4,), name="a"), kind.layers.Input((2,), name="b")
    hidden = kind.layers.BatchNormalization()(kind.layers.Concatenate()([a, b]))
    outputs = [
        kind.layers.Dense(2, name="left")(hidden),
        kind.layers.Dense(1, name="right")(hidden),
    ]
    model = kind.Model([a, b], outputs)
    model.compile("sgd", "mse")
    made = models.estimator(models.with_weights(model), tmp_path / "run")
    path = made.export_saved_model(str(tmp_path / "export")).decode()
    rows = {"a": models.X[:3], "b": models.X[3:6, :2]}
    expected = [np.asarray(each) for each in model([rows["a"], rows["b"]], training=False)]
    answer = exports.answers(Path(path), rows)
    assert set(answer) == {"left", "right"}
    assert "is not supported on the TPU" not in caplog.text
    np.testing.assert_allclose(answer["left"], expected[0], rtol=1e-5)
    np.testing.assert_allclose(answer["right"], expected[1], rtol=1e-5)


def test_an_input_of_strings_is_refused_by_its_name(tmp_path: Path) -> None:
    kind = models.KINDS[1]
    x = kind.layers.Input((), dtype="string", name="text")
    lengths = kind.layers.Lambda(lambda s: tf.cast(tf.strings.length(s), tf.float32)[:, None])(x)
    model = models.compiled_model(kind, kind.Model(x, kind.layers.Dense(3)(lengths)))
    made = models.estimator(model, tmp_path / "run")
    with pytest.raises(InvalidSetting, match="has string inputs \(text\), and a TPU"):
        made.export_saved_model(str(tmp_path / "export"))


@_each_kind
def test_a_model_that_does_not_say_its_inputs_wants_a_receiver(kind: Any) -> None:
    class Own(kind.Model):
        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(InvalidSetting, match="Give export_saved_model a serving_input"):
        serving_input_receiver_fn(Own(name="own"))
