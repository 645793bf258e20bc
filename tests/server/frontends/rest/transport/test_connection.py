"""All requests of a connection are answered in order, even next to invalid or odd ones."""

import contextlib
import logging
import select
import socket

import pytest

from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.sliced_protocol import SlicedProtocol
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask, send

PREDICT = "/v1/models/half:predict"
BODY = b'{"inputs": 2}'
ANSWER = b'{\n    "outputs": 3.0\n}'
HEAD = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\n"
REQUEST = HEAD + b"Content-Length: 13\r\n\r\n" + BODY
LAST = HEAD + b"Connection: close\r\nContent-Length: 13\r\n\r\n" + BODY
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\nd\r\n" + BODY + b"\r\n0\r\n"
# The headers that the HTTP client of Java's standard library sends with every request.
HTTP2 = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\n"
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"


@pytest.fixture(params=["fast path", "by uvicorn"])
def address(request: pytest.FixtureRequest, dataplane: DataPlane, serve: Serve) -> Address:
    address = serve(build_rest_app(dataplane))
    if request.param == "fast path":
        for _ in range(20):
            assert ask(address, "POST", PREDICT, BODY)[1] == ANSWER
    return address


def add_upgrade(request: bytes, upgrade: bytes) -> bytes:
    return request.replace(b"Host: x\r\n", b"Host: x\r\n" + upgrade)


@pytest.mark.parametrize("upgrade", [HTTP2, WEBSOCKET], ids=["HTTP/2", "WebSocket"])
@pytest.mark.parametrize("request_", [REQUEST, CHUNKED + b"\r\n"], ids=["whole", "chunked"])
def test_upgrade_is_ignored(
    address: Address, upgrade: bytes, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    replies = send(address, add_upgrade(request_, upgrade) * 3 + REQUEST + LAST)
    assert replies.count(b"HTTP/1.1 200 OK") == replies.count(ANSWER) == 5
    assert caplog.records == []


def test_upgrade_without_a_body_is_ignored(address: Address) -> None:
    request = add_upgrade(b"GET /v1/models/half HTTP/1.1\r\nHost: x\r\n\r\n", HTTP2)
    assert send(address, request * 2 + LAST).count(b"HTTP/1.1 200 OK") == 3


def test_upgrade_may_come_in_pieces(address: Address) -> None:
    request = add_upgrade(REQUEST, HTTP2)
    with socket.create_connection(address, timeout=30) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(request)):
            client.sendall(request[place : place + 1])
        received = b""
        while ANSWER not in received:
            received += client.recv(65536)
        client.sendall(LAST)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("trailer", [b"Content-Encoding: gzip\r\n", b"Expect: 100-continue\r\n"])
def test_trailers_are_not_headers(address: Address, trailer: bytes) -> None:
    replies = send(address, (CHUNKED + trailer + b"\r\n") * 20 + LAST)
    assert replies.count(b"HTTP/1.1") == replies.count(ANSWER) == 21


@pytest.mark.parametrize(
    "endless", [b"a:b\r\n", b"0;a", b"1;"], ids=["lines", "a name", "extension"]
)
def test_trailers_and_chunk_extensions_are_bounded_like_a_head(
    address: Address, endless: bytes
) -> None:
    start = CHUNKED if endless != b"1;" else CHUNKED[:-3]
    with socket.create_connection(address, timeout=30) as client, contextlib.suppress(OSError):
        client.sendall(start + endless * 10_000_000)
        pytest.fail("the server has taken more than a head may have")
    assert ask(address, "POST", PREDICT, BODY)[1] == ANSWER


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which each turn of the parser adds its number of parts."""
    turns: list[int] = []
    parse = SlicedProtocol._parse_in_turns

    def record(protocol: SlicedProtocol) -> None:
        parse(protocol)
        turns.append(protocol._num_parts)

    monkeypatch.setattr(SlicedProtocol, "_parse_in_turns", record)
    return turns


def test_small_chunks_leave_turns_to_other_connections(address: Address, turns: list[int]) -> None:
    spaces = 100_000
    head = CHUNKED[: CHUNKED.index(b"d\r\n{")].replace(b"Host", b"Connection: close\r\nHost")
    body = b"1\r\n \r\n" * spaces + b"d\r\n" + BODY + b"\r\n0\r\n\r\n"
    assert ANSWER in send(address, head + body)
    # A slice of 2 KiB has 342 chunks of 6 bytes; the turn ends with the slice that passes 256.
    assert max(turns) <= 256 + 342


def test_requests_in_a_row_leave_turns_to_other_connections(
    address: Address, turns: list[int]
) -> None:
    request = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
    assert send(address, request * 2000 + LAST).count(b"HTTP/1.1 ") == 2001
    # A slice of 2 KiB has heads of 28 bytes, 74 at most, which count as 16 parts each.
    assert max(turns) <= 256 + 74 * 16


BROKEN = HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
ENDLESS = HEAD + b"A: " + b"b" * 150_000


@pytest.mark.parametrize(
    "garbage",
    [b"garbage\r\n\r\n", b"garbage\r\n\r\n" * 60_000, BROKEN, ENDLESS],
    ids=["some", "much", "in a body", "in a head"],
)
@pytest.mark.parametrize("count", [1, 3])
def test_invalid_data_is_refused_after_the_responses_to_earlier_requests(
    address: Address,
    garbage: bytes,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The requests are large, so that they are in flight when the invalid data arrives.
    large = HEAD + b"Content-Length: 6000\r\n\r\n" + BODY.ljust(6000)
    with socket.create_connection(address, timeout=30) as client:
        with contextlib.suppress(OSError):
            client.sendall(large * count + garbage)
        received = b""
        while received.count(ANSWER) < count:
            assert (piece := client.recv(65536))
            received += piece
    # At most one warning is logged, and it comes after the responses to all earlier requests.
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert len(caplog.records) <= 1
    assert ask(address, "POST", PREDICT, BODY)[1] == ANSWER
    assert [record for record in caplog.records if record.levelno > logging.WARNING] == []


def test_body_that_ends_in_garbage_is_refused_once(
    address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    assert send(address, BROKEN).count(b"HTTP/1.1 400 Bad Request") == 1
    assert [record for record in caplog.records if record.levelno > logging.WARNING] == []


@pytest.mark.slow
def test_server_stops_reading_from_a_client_that_reads_no_response(address: Address) -> None:
    numbers = b'{"inputs": [%s]}' % b", ".join([b"1"] * 1000)
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(numbers) + numbers
    # More bytes than the sockets at both ends of the connection can buffer.
    requests, most = request * 20_000, 40_000_000
    assert len(requests) > most
    with socket.create_connection(address, timeout=30) as client:
        client.setblocking(False)
        view, num_bytes = memoryview(requests), 0
        while num_bytes < most and select.select([], [client], [], 1)[1]:
            num_bytes += client.send(view[num_bytes : num_bytes + 100_000])
        assert num_bytes < most
        client.setblocking(True)
        client.settimeout(30)
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert ask(address, "POST", PREDICT, BODY)[1] == ANSWER
