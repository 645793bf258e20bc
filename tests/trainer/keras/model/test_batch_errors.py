"""A batch that does not fit the model raises an error that describes the batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.keras import models
from tpuserve.errors import InvalidSetting

_WRONG: dict[str, tuple[Callable[[int], Any], str]] = {
    "labels": (
        lambda rows: tf.data.Dataset.from_tensor_slices(models.X).batch(rows),
        r"cannot process the batch: .*features float32\(\S+, 4\), labels none, weights none",
    ),
    "columns": (
        lambda rows: models.batches(models.X[:, :3], rows=rows),
        r"cannot process the batch: .*features float32\(8, 3\), labels int32\(8,\)",
    ),
    "weights": (
        lambda rows: models.batches(weights=np.ones([48, 7], "float32"), rows=rows),
        r"cannot process the batch: .*weights float32\(8, 7\)",
    ),
}


@pytest.mark.parametrize("package", models.PACKAGES, ids=lambda package: package.__name__)
@pytest.mark.parametrize(("dataset", "message"), _WRONG.values(), ids=_WRONG)
def test_a_batch_that_does_not_fit_is_described(
    package: Any, dataset: Callable[[int], Any], message: str, tmp_path: Path
) -> None:
    estimator = models.estimator(models.dense(package), tmp_path)
    with pytest.raises(InvalidSetting, match=message):
        estimator.train(models.input_fn(dataset), steps=1)
    with pytest.raises(InvalidSetting, match="cannot process the batch"):
        estimator.evaluate(models.input_fn(dataset), steps=1)


def test_class_weights_need_one_output(tmp_path: Path) -> None:
    package = models.PACKAGES[0]
    x = package.layers.Input((4,))
    model = package.Model(x, [package.layers.Dense(1)(x), package.layers.Dense(1)(x)])
    model.compile("sgd", "mse")
    estimator = models.estimator(model, tmp_path, class_weight={0: 2.0})

    def dataset(rows: int) -> Any:
        return models.batches(y=(models.X[:, :1], models.X[:, 1:2]), rows=rows)

    with pytest.raises(
        InvalidSetting, match="class_weight needs a model with one output, and the model has 2"
    ):
        estimator.train(models.input_fn(dataset), steps=1)
