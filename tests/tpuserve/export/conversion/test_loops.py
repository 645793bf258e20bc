"""Conversion of models with loops that read variables: the loops go to the TPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tpuserve.export import answers
from tests.tpuserve.export.conversion import models
from tpuserve.export import convert

v1 = tf.compat.v1


class Powers(tf.Module):
    """Multiplies x by a variable of value 2, three times in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def serve(self, x: Any) -> Any:
        return {"y": _multiply(x, lambda y: y * self.factor)}


def _multiply(x: Any, turn: Callable[[Any], Any]) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, turn(y)), (0, x))[1]


def save_version_1(directory: Path, *, use_resource: bool) -> Path:
    """Save the same model with the control flow of TensorFlow 1: Enter, Switch and Merge."""
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None], name="x")
            factor = v1.get_variable("factor", initializer=2.0, use_resource=use_resource)
            y = _multiply(x, lambda y: y * factor)
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(directory), {"x": x}, {"y": y})
    finally:
        v1.enable_control_flow_v2()
    return directory


@pytest.mark.parametrize(
    "save",
    [
        pytest.param(lambda path: models.save(Powers(), path), id="version_2"),
        pytest.param(lambda path: save_version_1(path, use_resource=True), id="version_1"),
        pytest.param(lambda path: save_version_1(path, use_resource=False), id="references"),
    ],
)
def test_loop_that_reads_a_variable_goes_to_the_tpu(
    save: Callable[[Path], Path], tmp_path: Path
) -> None:
    (signature,) = convert(save(tmp_path / "model"), tmp_path / "out", whole=True).signatures
    assert signature.num_host_ops == 0
    outputs = answers.both(str(tmp_path / "out"), x=np.array([1, -3], np.float32))
    np.testing.assert_allclose(outputs["y"], [8, -24])
