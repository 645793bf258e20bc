"""A model of Keras in a program of TensorFlow 1 trains as an Estimator as it does by itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer import exports
from tests.trainer.compat import era

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

OPTIMIZERS = ("sgd", "adam", "native")


@pytest.mark.parametrize("cores", [0, 4], ids=["cpu", "tpu"])
def test_the_program_trains_its_model_as_fit_does(cores: int, tmp_path: Path) -> None:
    said = era.run(
        "keras_question.py", f"--use_tpu={cores > 0}", f"--model_dir={tmp_path}", cores=cores
    )
    results = json.loads(said.splitlines()[-1])
    assert list(results) == list(OPTIMIZERS)
    for name, found in results.items():
        losses = [each for _, each in sorted(era.scalars(tmp_path / name)["loss"].items())]
        assert losses == pytest.approx(found["fitted"], rel=1e-4)
        assert found["untouched"]
        assert found["returned"]
        # As TensorFlow 1 called it, and as fit found it.
        assert set(found["expected"]) == {"loss", "acc"}
        metrics = {each: found["found"][each] for each in found["expected"]}
        assert metrics == pytest.approx(found["expected"], rel=1e-4)
        if cores:
            _check_export(found)


def _check_export(found: dict[str, Any]) -> None:
    """Both metagraphs have the model's input and output, and its weights."""
    images = np.ones([2, 8, 8, 1], np.float32)
    answer = exports.answers(Path(found["export"]), {"conv_input": images})
    with np.load(found["kept"]) as kept:
        conv, conv_bias, digit, digit_bias = (kept[each] for each in kept.files)
    # On equal pixels each filter finds the same everywhere: the sum of its kernel.
    hidden = 2 * np.maximum(conv.sum(axis=(0, 1, 2)) + conv_bias, 0)
    logits = np.tile(hidden, 9) @ digit + digit_bias
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(answer["digit"], [expected, expected], rtol=1e-4)
