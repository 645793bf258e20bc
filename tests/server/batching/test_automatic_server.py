"""By default a server batches the signatures for which that is safe and faster, and no others."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import tensorflow as tf

from server.app import Server
from server.config.settings import Settings
from tests.processes import LOOPBACK, free_ports

_ROWS = [tf.TensorSpec([None], tf.float32, "x")]


class Signatures(tf.Module):
    """Signatures that may share a batch, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(0.0)

    @tf.function(input_signature=_ROWS)
    def slow(self, x: Any) -> Any:
        """A loop, whose steps take as long for many rows as for one."""
        _, y = tf.while_loop(lambda i, y: i < 1000, lambda i, y: (i + 1, y + 1), (0, x))
        return {"y": y}

    @tf.function(input_signature=_ROWS)
    def mixed(self, x: Any) -> Any:
        return {"y": self.slow(x)["y"] * tf.reduce_mean(x)}

    @tf.function(input_signature=_ROWS)
    def counted(self, x: Any) -> Any:
        return {"y": x + self.count.assign_add(1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def words(self, text: Any) -> Any:
        return {"words": tf.strings.split(text).to_tensor()}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base_path = tmp_path_factory.mktemp("m")
    module = Signatures()
    names = ("slow", "mixed", "counted", "words")
    tf.saved_model.save(
        module, str(base_path / "1"), {name: getattr(module, name) for name in names}
    )
    rpc, rest = free_ports(2)
    server = Server(
        Settings(base_path, "m", rpc, rest, LOOPBACK), load=None, on_failure=pytest.fail
    )
    server.start()
    yield f"http://{LOOPBACK}:{rest}/v1/models/m"
    server.stop()


def test_only_signatures_that_write_nothing_and_have_independent_rows_are_batched(url: str) -> None:
    unbatched = httpx.get(f"{url}/statistics").json()["batching"]["unbatched_signatures"]
    assert [(name, reason.split(":")[0].split(" (")[0]) for name, reason in unbatched.items()] == [
        ("counted", "it updates a variable"),
        ("mixed", "its rows depend on each other"),
        ("words", "its output words is string [?, ?]"),
    ]


def test_the_check_has_changed_no_variable(url: str) -> None:
    body = {"signature_name": "counted", "instances": [5.0]}
    assert httpx.post(f"{url}:predict", json=body).json() == {"predictions": [6.0]}


def test_a_request_of_more_rows_than_a_batch_is_answered(url: str) -> None:
    body = {"signature_name": "slow", "instances": [1.0] * 100}
    assert httpx.post(f"{url}:predict", json=body).json() == {"predictions": [1001.0] * 100}
