from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import trainer
from tpuserve.errors import InvalidSetting
from trainer.compat.keras_estimator import model_to_estimator

pytestmark = pytest.mark.slow


def compiled() -> tf_keras.Model:
    """y = w x with w = 2."""
    start = tf_keras.initializers.Constant(2.0)
    dense = tf_keras.layers.Dense(1, use_bias=False, kernel_initializer=start, input_shape=(1,))
    model = tf_keras.Sequential([dense])
    model.compile("sgd", "mse")
    return model


def ones() -> tf.data.Dataset:
    batch = np.ones([4, 1], np.float32)
    return tf.data.Dataset.from_tensors((batch, batch))


def test_an_estimator_goes_on_from_the_weights_of_the_model(tmp_path: Path) -> None:
    estimator = model_to_estimator(compiled(), model_dir=str(tmp_path))
    assert isinstance(estimator, trainer.Estimator)
    assert estimator.evaluate(ones)["loss"] == 1.0


@pytest.mark.parametrize("option", ["metric_names_map", "export_outputs"])
def test_what_is_not_supported_is_refused(option: str) -> None:
    options: dict[str, Any] = {option: {"a": "b"}}
    with pytest.raises(InvalidSetting, match=f"{option} is .* which is not supported"):
        model_to_estimator(compiled(), **options)
