from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer import exports, programs

pytestmark = pytest.mark.slow

v1 = tf.compat.v1


def test_an_export_has_no_part_of_the_checkpoint_that_training_began_with(tmp_path: Path) -> None:
    # Write a checkpoint after one step: w = 0.5.
    programs.estimator(tmp_path / "first").train(programs.ones(), max_steps=1)

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        v1.train.init_from_checkpoint(str(tmp_path / "first"), {"w": "w"})
        return spec

    # Another step from w = 0.5, which init_from_checkpoint has read: w = 0.75.
    directory = exports.export(tmp_path, model_fn=model_fn)
    assert exports.answers(directory, {"x": np.array([[2.0]], np.float32)})["y"].tolist() == [[1.5]]
    assert b"/first/" not in (directory / "saved_model.pb").read_bytes()
    assert programs.variable(tmp_path / "model", "w") == 0.75
