"""Conversion of models with ResourceGatherNd, which XLA cannot compile."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tpuserve.export import answers
from tests.tpuserve.export.conversion import models
from tpuserve.export import convert


class Lookup(tf.Module):
    """Gathers the elements of a matrix variable at pairs of indices."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int32, "pairs")])
    def serve(self, pairs: Any) -> Any:
        return {"y": tf.gather_nd(self.matrix, pairs)}


@pytest.mark.parametrize("bfloat16", [False, True])
def test_gather_of_pairs_goes_to_the_tpu(bfloat16: bool, tmp_path: Path) -> None:
    directory = models.save(Lookup(), tmp_path / "model")
    conversion = convert(directory, tmp_path / "out", whole=True, bfloat16=bfloat16)
    (signature,) = conversion.signatures
    assert signature.num_host_ops == 0
    outputs = answers.both(str(tmp_path / "out"), pairs=np.array([[1, 0], [0, 1]], np.int32))
    np.testing.assert_array_equal(outputs["y"], [3, 2])
