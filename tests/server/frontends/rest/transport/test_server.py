"""uvicorn starts, drains and stops as the server requires."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn

from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.server import RestServer
from server.process import ports
from tests.server.fakes import FakeLoader


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with ports.bind_port("127.0.0.1", 0, "--rest_api_port") as listener:
        yield listener


@pytest.fixture
def server(dataplane: DataPlane, listener: socket.socket) -> Iterator[RestServer]:
    server = RestServer(
        build_rest_app(dataplane), listener, grace_seconds=10, on_failure=pytest.fail
    )
    server.start()
    yield server
    server.stop()
    server.join()


def url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}/v1/models/half:predict"


def test_reserved_port_refuses_until_started(listener: socket.socket) -> None:
    with pytest.raises(httpx.ConnectError):
        httpx.get(url(listener))


@pytest.mark.usefixtures("server")
def test_request_is_answered_as_soon_as_started(listener: socket.socket) -> None:
    assert httpx.post(url(listener), content='{"inputs": 2}').json() == {"outputs": 3.0}


def test_stop_answers_the_request_in_flight(
    server: RestServer, listener: socket.socket, loader: FakeLoader
) -> None:
    model, address = loader.models[3], url(listener)
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(httpx.post, address, content='{"inputs": 2}')
        assert model.has_begun.wait(10)
        server.stop()
        model.gate.set()
        server.join()
        assert reply.result().json() == {"outputs": 3.0}
    with pytest.raises(httpx.ConnectError):
        httpx.post(address)


def test_stop_during_the_startup_of_uvicorn_closes_the_listener(
    dataplane: DataPlane, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RestServer(
        build_rest_app(dataplane), listener, grace_seconds=10, on_failure=pytest.fail
    )
    startup = uvicorn.Server.startup

    async def stop_and_start_up(
        uvicorn_server: uvicorn.Server, sockets: list[socket.socket] | None = None
    ) -> None:
        server.stop()
        await startup(uvicorn_server, sockets)

    monkeypatch.setattr(uvicorn.Server, "startup", stop_and_start_up)
    server.start()
    server.join()
    assert listener.fileno() == -1


def test_client_that_disconnects_does_no_harm(
    server: RestServer, listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(b"POST /v1/models/half:predict HTTP/1.1\r\nContent-Length: 99\r\n\r\n{")
    assert httpx.post(url(listener), content='{"inputs": 2}').status_code == 200
    assert not caplog.records


def test_data_other_than_http_does_no_harm(server: RestServer, listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(b"\x00\xff\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400")
    assert httpx.post(url(listener), content='{"inputs": 2}').status_code == 200


def test_failure_of_uvicorn_is_reported(dataplane: DataPlane, listener: socket.socket) -> None:
    failed = threading.Event()
    server = RestServer(
        build_rest_app(dataplane), listener, 10, on_failure=lambda reason: failed.set()
    )
    server._server.config.http = "no.such:protocol"
    server.start()
    assert failed.wait(10)
