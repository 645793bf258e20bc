"""Connections beyond the limits of all clients and of one client are closed at once."""

import socket

import pytest

from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.connection_limit import ConnectionLimit
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import ask


@pytest.mark.parametrize("limit", [ConnectionLimit(2), ConnectionLimit(9, 2)])
def test_connection_beyond_the_limit_is_closed(
    dataplane: DataPlane, serve: Serve, limit: ConnectionLimit
) -> None:
    address = serve(build_rest_app(dataplane), connection_limit=limit)
    with socket.create_connection(address, timeout=30) as first:
        with (
            socket.create_connection(address, timeout=30),
            socket.create_connection(address, timeout=30) as third,
        ):
            assert third.recv(100).startswith(b"HTTP/1.1 503 Service Unavailable")
        first.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while first.recv(1000):
            pass
    # The closed connections count no more, as soon as the server sees that they are closed.
    while ask(address, "GET", "/healthz")[0].status != 200:
        pass


def test_one_client_leaves_connections_to_others() -> None:
    limit = ConnectionLimit(4, 2)
    assert [limit.add(peer) for peer in "aaabbb"] == [True, True, False, True, False, False]
    for peer in "aaabbb":
        limit.remove(peer)
    assert limit.add("a")


def test_there_may_be_no_limit() -> None:
    limit = ConnectionLimit()
    assert all(limit.add("a") for _ in range(100))
