"""A request with the wrong number of dimensions is an error over each API, and no more."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.processes import ServeProcess
from tpuserve.client import Client
from tpuserve.client.address import ApiName
from tpuserve.errors import TpuserveError

IMAGE = np.ones([1, 8, 8, 1], np.float32)


@pytest.fixture(scope="module", params=[[], ["--enable_batching"]], ids=["plain", "batching"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServeProcess]:
    """A server of a convolution, whose kernel ends the process for a list of numbers."""
    import tensorflow as tf

    module = tf.Module()
    module.serve = tf.function(
        lambda x: {"y": tf.nn.conv2d(x, tf.ones([3, 3, 1, 1]), 1, "VALID")},
        input_signature=[tf.TensorSpec([None, 8, 8, 1], tf.float32, "x")],
    )
    base: Path = tmp_path_factory.mktemp("convolution")
    tf.saved_model.save(module, str(base / "1"), module.serve)
    server = ServeProcess(base, flags=request.param)
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("scheme", "api"), [("http", "v1"), ("grpc", "v1"), ("http", "v2"), ("grpc", "v2")]
)
def test_a_list_for_images_is_refused_and_the_server_goes_on(
    server: ServeProcess, scheme: str, api: ApiName
) -> None:
    address = server.rest if scheme == "http" else server.rpc
    with Client(f"{scheme}://{address}", api=api) as client:
        with pytest.raises(TpuserveError, match=r"the shape \[1\].* expects float32 \[\?, 8, 8, 1"):
            client.predict("half", {"x": np.ones([1], np.float32)})
        assert client.predict("half", {"x": IMAGE})["y"].max() == 9
