"""A response counts as in flight until gRPC has sent it, or has given its client up."""

import socket
import struct
import time
from collections.abc import Callable

import numpy as np
import pytest

from server.admission.admission import AdmissionController
from server.admission.memory_budget import MemoryBudget
from server.dataplane import DataPlane
from server.frontends.grpc.executor import stalled_calls
from tests.server.frontends.grpc import clients

MB = 1 << 20
SECONDS = 60
# The frame types and flags of HTTP/2. Source: RFC 9113, section 6.
DATA, HEADERS, SETTINGS, END_STREAM, END_HEADERS = 0, 1, 4, 1, 4
INITIAL_WINDOW = 4


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def call_without_reading(address: str, message: bytes) -> socket.socket:
    """Send a Predict request on a new connection whose HTTP/2 window is 0."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/tensorflow.serving.PredictionService/Predict",
        b":authority": b"localhost",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    # Encode the headers as literal fields with new names. Source: RFC 7541, section 6.2.2.
    head = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in fields.items()
    )
    body = struct.pack(">BI", 0, len(message)) + message
    frames = [
        frame(DATA, 0, 1, body[start : start + 16384]) for start in range(0, len(body), 16384)
    ]
    host, _, port = address.rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=SECONDS)
    client.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 0))
        + frame(HEADERS, END_HEADERS, 1, head)
        + b"".join(frames)
        + frame(DATA, END_STREAM, 1, b"")
    )
    return client


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_unread_response_counts_until_its_client_is_gone(
    dataplane: DataPlane, allow_direct_polling: bool
) -> None:
    budget, admission = MemoryBudget(8 * MB), AdmissionController()
    # 10,000 floats: the request and the response have a little more than 40,000 bytes each.
    message = clients.predict_request(x=np.ones(10_000, np.float32)).SerializeToString()
    with clients.serving(
        dataplane,
        memory_budget=budget,
        admission=admission,
        allow_direct_polling=allow_direct_polling,
    ) as server:
        unread = server._executor.unread_responses
        with call_without_reading(server.address, message):
            wait_until(lambda: unread.has_waiting_calls)
            assert admission.in_flight == 1
            assert 80_000 < budget.reserved_bytes < 82_000
        wait_until(lambda: not unread.has_waiting_calls)
        wait_until(lambda: admission.in_flight == 0)
        assert budget.reserved_bytes == 0


@pytest.mark.slow
def test_client_that_reads_no_response_is_given_up(
    dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stalled_calls, "UNREAD_RESPONSE_SECONDS", 1.0)
    budget = MemoryBudget(8 * MB)
    message = clients.predict_request(x=np.ones(10_000, np.float32)).SerializeToString()
    with (
        clients.serving(dataplane, memory_budget=budget) as server,
        call_without_reading(server.address, message),
    ):
        wait_until(lambda: server._executor.unread_responses.has_waiting_calls)
        wait_until(lambda: budget.reserved_bytes == 0)
    assert "1 calls are cancelled: their clients do not read the responses" in caplog.text


def test_response_that_is_read_counts_no_more(dataplane: DataPlane) -> None:
    budget, admission = MemoryBudget(8 * MB), AdmissionController(1)
    with (
        clients.serving(dataplane, memory_budget=budget, admission=admission) as server,
        clients.connect(server.address) as client,
    ):
        assert len(client.predict(x=np.ones(10_000, np.float32)).outputs["y"].float_val)
        wait_until(lambda: admission.in_flight == 0)
        assert budget.reserved_bytes == 0
