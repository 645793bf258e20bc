"""A client that closes its sending side still gets the responses to its requests."""

import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

from server.config.tls import TlsConfig
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.server import RestServer
from server.process import ports
from tests.server.certificates import Authority
from tests.server.fakes import FakeLoader
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask

AUTHORITY = Authority()
OURS = AUTHORITY.identity()
PREDICT = "/v1/models/half:predict"
ANSWER = b'{\n    "outputs": 3.0\n}'
HEAD = b"POST /v1/models/half:predict HTTP/%s\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


def request(size: int, version: bytes = b"1.1") -> bytes:
    return HEAD % (version, size) + b'{"inputs": 2}'.ljust(size)


def receive_response(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(65536):
        pieces.append(piece)
    # The server may send an interim response first, to learn whether the client is still there.
    return b"".join(pieces).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")


def send_and_close(address: Address, data: bytes) -> bytes:
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return receive_response(client)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("size", [13, 10_000, 3_000_000])
def test_request_of_any_size_is_answered(
    dataplane: DataPlane, serve: Serve, size: int, version: bytes
) -> None:
    address = serve(build_rest_app(dataplane))
    for _ in range(20):
        reply = send_and_close(address, request(size, version))
        assert reply.startswith(b"HTTP/1.1 200 OK")
        assert reply.endswith(ANSWER)


def test_large_response_is_complete(dataplane: DataPlane, serve: Serve) -> None:
    numbers = b'{"instances": [%s]}' % b",".join([b"1"] * 600_000)
    reply = send_and_close(
        serve(build_rest_app(dataplane)), HEAD % (b"1.1", len(numbers)) + numbers
    )
    assert reply.count(b"2.5") == 600_000


def test_pipelined_requests_are_answered_except_an_incomplete_one(
    dataplane: DataPlane, serve: Serve
) -> None:
    replies = send_and_close(
        serve(build_rest_app(dataplane)), request(6000) * 3 + request(6000)[:-1]
    )
    assert replies.count(b"HTTP/1.1") == replies.count(ANSWER) == 3


@pytest.mark.parametrize("missing", [1, 10_001], ids=["body", "head"])
def test_incomplete_request_ends_the_connection(
    dataplane: DataPlane, serve: Serve, missing: int
) -> None:
    assert send_and_close(serve(build_rest_app(dataplane)), request(10_000)[:-missing]) == b""


def test_client_that_disconnects_while_the_model_runs_does_no_harm(
    dataplane: DataPlane, serve: Serve, loader: FakeLoader, caplog: pytest.LogCaptureFixture
) -> None:
    address, model = serve(build_rest_app(dataplane)), loader.models[3]
    model.gate.clear()
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(request(10_000) * 2)
        assert model.has_begun.wait(10)
    model.gate.set()
    assert ask(address, "POST", PREDICT, b'{"inputs": 2}')[1] == ANSWER
    assert not caplog.records


@pytest.fixture
def tls_address(dataplane: DataPlane) -> Iterator[Address]:
    with ports.bind_port("127.0.0.1", 0, "--rest_api_port") as listener:
        tls = TlsConfig(OURS.key, OURS.certificate)
        server = RestServer(build_rest_app(dataplane), listener, 5, pytest.fail, tls=tls)
        server.start()
        yield listener.getsockname()
        server.stop()
        server.join()


@pytest.mark.slow
def test_request_over_tls_is_answered_if_the_client_ends_sending_while_the_model_runs(
    tls_address: Address, loader: FakeLoader
) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    incoming, outgoing, model = ssl.MemoryBIO(), ssl.MemoryBIO(), loader.models[3]
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(tls_address, timeout=30) as client:
        while is_unfinished(tls.do_handshake):
            client.sendall(outgoing.read())
            incoming.write(client.recv(65536))
        tls.write(request(10_000))
        model.gate.clear()
        client.sendall(outgoing.read())
        assert model.has_begun.wait(10)
        assert is_unfinished(tls.unwrap)  # the client ends sending; it can still receive
        client.sendall(outgoing.read())
        model.gate.set()
        incoming.write(receive_response(client))
    reply = b""
    while not reply.endswith(ANSWER):
        reply += tls.read(65536)  # raises an error if the connection ends


def is_unfinished(step: Callable[[], object]) -> bool:
    try:
        step()
    except ssl.SSLWantReadError:
        return True
    return False
