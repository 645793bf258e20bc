"""Clients that send what they are told, byte for byte."""

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
    """One request on a connection of its own, its path as it is."""
    connection = http.client.HTTPConnection(*address, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply, reply.read()
    finally:
        connection.close()


def send(address: Address, data: bytes) -> bytes:
    """What comes back for some bytes, until the server hangs up."""
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(data)
        pieces = []
        while piece := client.recv(65536):
            pieces.append(piece)
        return b"".join(pieces)
