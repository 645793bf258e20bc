"""Tests a TensorFlow 1 program that makes an Estimator of a Keras model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer import exports
from tests.trainer.compat import program_runner

pytestmark = [pytest.mark.slow, pytest.mark.numeric]


# tests/trainer/keras/test_optimizers.py has all optimizers of Keras on a TPU.
@pytest.mark.parametrize(
    ("cores", "optimizers"),
    [(0, ["sgd", "adam", "native"]), (4, ["adam", "native"])],
    ids=["cpu", "tpu"],
)
def test_estimator_trains_the_model_as_fit_does(
    cores: int, optimizers: list[str], tmp_path: Path
) -> None:
    output = program_runner.run_program(
        "keras_question.py",
        *(f"--use_tpu={cores > 0}", f"--model_dir={tmp_path}"),
        f"--optimizers={','.join(optimizers)}",
        cores=cores,
    )
    results = json.loads(output.splitlines()[-1])
    assert list(results) == optimizers
    for name, result in results.items():
        losses = [
            loss for _, loss in sorted(program_runner.read_scalars(tmp_path / name)["loss"].items())
        ]
        assert losses == pytest.approx(result["fitted"], rel=1e-4)
        assert result["untouched"]
        assert result["returned"]
        # The metric has the name of TensorFlow 1, and the value that fit computed.
        assert set(result["expected"]) == {"loss", "acc"}
        metrics = {metric: result["found"][metric] for metric in result["expected"]}
        assert metrics == pytest.approx(result["expected"], rel=1e-4)
        if cores:
            _check_export(result)


def _check_export(result: dict[str, Any]) -> None:
    """Check that both metagraphs have the model's input, output and weights."""
    images = np.ones([2, 8, 8, 1], np.float32)
    answer = exports.answers(Path(result["export"]), {"conv_input": images})
    with np.load(result["kept"]) as weights:
        conv, conv_bias, digit, digit_bias = (weights[name] for name in weights.files)
    # If all pixels are equal, the output of a filter is the sum of its kernel at every position.
    hidden = 2 * np.tanh(conv.sum(axis=(0, 1, 2)) + conv_bias)
    logits = np.tile(hidden, 9) @ digit + digit_bias
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(answer["digit"], [expected, expected], rtol=1e-4)
