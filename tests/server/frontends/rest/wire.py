"""HTTP clients that send exact bytes."""

import http.client
import socket
from collections.abc import Mapping
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]


def ask(
    address: Address,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send one request on a new connection, without changing its path."""
    connection = http.client.HTTPConnection(*address, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply, reply.read()
    finally:
        connection.close()


def send(address: Address, data: bytes) -> bytes:
    """Send bytes, and return what the server sends until it closes the connection."""
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(data)
        pieces = []
        while piece := client.recv(65536):
            pieces.append(piece)
        return b"".join(pieces)
