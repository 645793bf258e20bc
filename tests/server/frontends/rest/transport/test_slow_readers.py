"""A large response counts in the memory budget until its client has read it, or has left."""

import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission import latency_tracker
from server.admission.memory_budget import MemoryBudget
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.dispatch.dispatcher import Dispatcher
from tests.server.fakes import FakeLoader
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask

pytestmark = pytest.mark.slow

PREDICT = "/v1/models/half:predict"
BODY = b'{"inputs": 2}'
REQUEST = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (
    PREDICT.encode(),
    len(BODY),
)
# The JSON text of the outputs is larger than the buffers of the connection's sockets.
OUTPUTS = {"y": np.zeros(4 << 20, np.float32)}
MIN_TEXT_BYTES = 16 << 20


def connect(address: Address) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(address)
    return connection


def wait_until_reserved(budget: MemoryBudget, least: int, most: int) -> None:
    deadline = time.monotonic() + 60
    while not least <= budget.reserved_bytes <= most:
        assert time.monotonic() < deadline, budget.reserved_bytes
        time.sleep(0.01)


def read_response(connection: socket.socket) -> int:
    """Read a whole response; return the size of its body."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 20)
    head, _, body = received.partition(b"\r\n\r\n")
    (length,) = [
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"content-length" in line
    ]
    count = len(body)
    while count < length:
        count += len(connection.recv(1 << 20))
    return length


@pytest.mark.parametrize("is_fast_path", [False, True])
@pytest.mark.parametrize("reads", [True, False])
def test_response_counts_until_its_client_has_read_it_or_left(
    dataplane: DataPlane,
    loader: FakeLoader,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    is_fast_path: bool,
    reads: bool,
) -> None:
    for name in ("_QUICK_SECONDS", "_VERY_SLOW_SECONDS"):
        monkeypatch.setattr(latency_tracker, name, 60 if is_fast_path else 0)
    dispatched: list[str] = []
    dispatch = Dispatcher.dispatch

    async def recording_dispatch(self: Dispatcher, path: str, *args: Any) -> Any:
        dispatched.append(path)
        return await dispatch(self, path, *args)

    monkeypatch.setattr(Dispatcher, "dispatch", recording_dispatch)
    # Enough memory for the outputs of one request while they are encoded, which take 26 bytes for
    # each number, and for the text of another response. Not enough for a second request while a
    # text is unread.
    budget = MemoryBudget(OUTPUTS["y"].size * 30 + MIN_TEXT_BYTES // 2)
    settings = Settings(Path("/models/half"))
    address = serve(build_rest_app(dataplane, settings, memory_budget=budget))
    for _ in range(20):
        ask(address, "POST", PREDICT, BODY)
    dispatched.clear()
    monkeypatch.setattr(loader.models[3], "_run", partial(lambda outputs, *_: outputs, OUTPUTS))
    with connect(address) as connection:
        connection.sendall(REQUEST + BODY)
        wait_until_reserved(budget, MIN_TEXT_BYTES, 2 * MIN_TEXT_BYTES)
        assert bool(dispatched) is not is_fast_path
        reply, text = ask(address, "POST", PREDICT, BODY)
        assert reply.status == 503
        assert b"(--max_request_memory_bytes)" in text
        if reads:
            assert read_response(connection) >= MIN_TEXT_BYTES
    wait_until_reserved(budget, 0, 0)
    with connect(address) as connection:
        connection.sendall(REQUEST + BODY)
        assert read_response(connection) >= MIN_TEXT_BYTES
    wait_until_reserved(budget, 0, 0)
