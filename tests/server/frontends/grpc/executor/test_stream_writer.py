"""A client that does not read its response stream takes no thread."""

import socket

import grpc

from server.dataplane import DataPlane
from tests.server.frontends.grpc import clients

# Frame types, flags and a setting of HTTP/2. Source: RFC 9113, section 6.
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = b"\0\4"
HEAD = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/grpc.health.v1.Health/Watch"),
    (b":authority", b"here"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def watching_without_reading(streams: int) -> bytes:
    head = b"".join(b"\0%c%s%c%s" % (len(name), name, len(value), value) for name, value in HEAD)
    frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    frames += frame(SETTINGS, 0, 0, INITIAL_WINDOW_SIZE + b"\0\0\0\0") + frame(
        SETTINGS, ACK, 0, b""
    )
    for number in range(streams):
        stream = 2 * number + 1
        frames += frame(HEADERS, END_HEADERS, stream, head)
        frames += frame(DATA, END_STREAM, stream, b"\0\0\0\0\0")
    return frames + frame(PING, 0, 0, b"are seen")


def test_clients_that_read_nothing_do_not_block_other_watchers(dataplane: DataPlane) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with (
        clients.serving(dataplane, enable_grpc_healthcheck_service=True) as server,
        socket.create_connection(server.address.rsplit(":", 1), timeout=30) as client,
        grpc.insecure_channel(server.address) as channel,
    ):
        client.sendall(watching_without_reading(40))
        received = b""
        # Wait for the headers of the responses. No messages arrive, because the client allows none.
        while b"are seen" not in received or b"application/grpc" not in received:
            assert (piece := client.recv(65536))
            received += piece
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(20):
            watched = stub.Watch(health_pb2.HealthCheckRequest(), timeout=10)
            assert next(watched).status == 1
            watched.cancel()
