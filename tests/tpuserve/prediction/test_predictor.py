"""A compiled model runs batches of one size, whatever the number of their rows."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tpuserve.prediction.batch import InputBatch
from tpuserve.prediction.example_predictor import Predictor


class Doubling:
    """A model that XLA compiles: y = 2 x."""

    choice = SimpleNamespace(is_tpu_graph=False, runtime="xla")

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def run(self, _: str, inputs: Mapping[str, Any], __: Sequence[str] | None) -> dict[str, Any]:
        self.sizes.append(len(inputs["x"]))
        return {"y": 2 * inputs["x"]}


@pytest.mark.parametrize(("rows", "size"), [(0, 0), (1, 4), (4, 4), (5, 5)])
def test_batches_are_padded_unless_they_have_no_row(rows: int, size: int) -> None:
    model: Any = Doubling()
    x = np.arange(rows)
    outputs = Predictor(model, 4).run(InputBatch("file", {"x": x}, [rows], "f"))
    assert outputs["y"].tolist() == (2 * x).tolist()
    assert model.sizes == [size]
