"""A batch that a model does not take is an error that says what the batch has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.keras import models
from tpuserve.errors import InvalidSetting

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("kind", models.KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("dataset", "said"), _WRONG.values(), ids=_WRONG)
def test_a_batch_that_does_not_fit_is_described(
    kind: Any, dataset: Callable[[int], Any], said: str, tmp_path: Path
) -> None:
    made = models.estimator(models.dense(kind), tmp_path)
    with pytest.raises(InvalidSetting, match=said):
        made.train(models.of(dataset), steps=1)
    with pytest.raises(InvalidSetting, match="cannot process the batch"):
        made.evaluate(models.of(dataset), steps=1)


def test_class_weights_want_one_output(tmp_path: Path) -> None:
    kind = models.KINDS[0]
    x = kind.layers.Input((4,))
    model = kind.Model(x, [kind.layers.Dense(1)(x), kind.layers.Dense(1)(x)])
    model.compile("sgd", "mse")
    made = models.estimator(model, tmp_path, class_weight={0: 2.0})

    def dataset(rows: int) -> Any:
        return models.batches(y=(models.X[:, :1], models.X[:, 1:2]), rows=rows)

    with pytest.raises(
        InvalidSetting, match="class_weight needs a model with one output, and the model has 2"
    ):
        made.train(models.of(dataset), steps=1)
