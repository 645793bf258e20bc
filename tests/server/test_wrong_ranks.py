"""A request with the wrong number of dimensions is an error over each API, and no more.

If the process does end, its log says what it was doing.
"""

import signal
from pathlib import Path

import numpy as np
import pytest

from tests.processes import ServeProcess
from tpuserve.client import Client
from tpuserve.errors import TpuserveError

IMAGE = np.ones([1, 8, 8, 1], np.float32)


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, whose kernel ends the process for a list of numbers."""
    import tensorflow as tf

    module = tf.Module()
    module.serve = tf.function(
        lambda x: {"y": tf.nn.conv2d(x, tf.ones([3, 3, 1, 1]), 1, "VALID")},
        input_signature=[tf.TensorSpec([None, 8, 8, 1], tf.float32, "x")],
    )
    base: Path = tmp_path_factory.mktemp("convolution")
    tf.saved_model.save(module, str(base / "1"), module.serve)
    return base


def test_a_list_for_images_is_refused_and_the_server_goes_on(each_client: Client) -> None:
    with pytest.raises(TpuserveError, match=r"the shape \[1\].* expects float32 \[\?, 8, 8, 1"):
        each_client.predict("half", {"x": np.ones([1], np.float32)})
    assert each_client.predict("half", {"x": IMAGE})["y"].max() == 9


def test_the_log_of_a_process_that_aborts_has_the_lines_of_its_threads(base_path: Path) -> None:
    status, log = ServeProcess(base_path).stop(signal.SIGABRT)
    assert status == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in log
    assert "server/app.py" in log
