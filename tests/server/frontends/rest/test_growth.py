"""The memory of the server process does not grow, whatever requests it gets.

TPUSERVE_FUZZ is the number of fuzzed requests. The first sixth of them warms the server up.
"""

import gzip
import http.client
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

REQUESTS = int(os.environ.get("TPUSERVE_FUZZ", "1200"))
MAX_BYTES = 1 << 20
SENT_BYTES = 1 << 30
PREDICT = "/v1/models/half:predict"
PATHS = (PREDICT, "/v1/models/half:classify", "/v1/models/half:regress", "/v1/models/no:predict")
GOOD = b'{"instances": [1.0, 2.0, 5.0]}'
ANSWER = b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'


@dataclass
class Process:
    """A server in a process of its own."""

    port: int
    pid: int

    def kilobytes(self, name: str) -> int:
        """Return a figure of /proc/PID/status: "VmRSS" is the memory now, "VmHWM" the maximum."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition(f"{name}:")[2].split()[0])

    def connect(self) -> closing[http.client.HTTPConnection]:
        """Return a context with one connection for several requests."""
        return closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30))

    def assert_served(self) -> None:
        """Check that a valid request is answered correctly."""
        with self.connect() as client:
            assert ask(client, PREDICT, GOOD) == (200, ANSWER)


@contextmanager
def serving(max_bytes: int) -> Iterator[Process]:
    """Run a server, and kill it on exit."""
    command = [sys.executable, "-m", "tests.server.frontends.rest.serve_fake", str(max_bytes)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Process(int(process.stdout.readline()), process.pid)
    finally:
        process.kill()
        process.communicate()


def ask(client: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, bytes]:
    client.request("POST", path, body)
    reply = client.getresponse()
    return reply.status, reply.read()


def make_fuzzed_body(chance: random.Random) -> bytes:
    """Return a random body, which is mostly invalid and sometimes not JSON."""
    body = bytearray(json.dumps(document(chance), ensure_ascii=False).encode())
    for _ in range(chance.choice((0, 0, 1, 3))):
        at = chance.randrange(len(body) + 1)
        body[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    return bytes(body)


def document(chance: random.Random) -> Any:
    return {
        key: value(chance, 0)
        for key in ("instances", "inputs", "examples", "signature_name", "context")
        if chance.random() < 0.4
    }


def value(chance: random.Random, depth: int) -> Any:
    kinds: list[Any] = [
        lambda: chance.uniform(-1e9, 1e9),
        lambda: chance.randrange(-(2**65), 2**65),
        lambda: chance.choice([None, True, float("nan"), float("inf"), "two", "echo", "ratio"]),
        lambda: "".join(map(chr, (chance.randrange(1, 0xD800) for _ in range(9)))),
        lambda: {"b64": chance.choice(["YQ==", "Y", "?"])},
    ]
    if depth < 4:
        kinds += 2 * [
            lambda: [value(chance, depth + 1) for _ in range(chance.randrange(5))],
            lambda: {key: value(chance, depth + 1) for key in chance.sample("xab", 2)},
            lambda: [chance.random() for _ in range(chance.choice((3, 3, 2000)))],
        ]
    return chance.choice(kinds)()


def test_fuzzed_requests_do_not_make_the_process_grow() -> None:
    chance, warm, statuses = random.Random(7), REQUESTS // 6, set()
    with serving(MAX_BYTES) as process, process.connect() as client:
        for turn in range(REQUESTS):
            if turn == warm:
                before = process.kilobytes("VmRSS")
            statuses.add(ask(client, PATHS[turn % len(PATHS)], make_fuzzed_body(chance))[0])
        grown = process.kilobytes("VmRSS") / before - 1
        print(f"{REQUESTS - warm} requests after {warm}: {before} kB grew by {grown:.1%}")
        process.assert_served()
    assert statuses == {200, 400, 404}
    assert grown < 0.15


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_body_of_a_gigabyte_is_not_held(is_chunked: bool) -> None:
    piece = bytes(1 << 20)
    size = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % SENT_BYTES
    with serving(MAX_BYTES) as process:
        process.assert_served()
        before, num_bytes = process.kilobytes("VmHWM"), 0
        with socket.create_connection(("127.0.0.1", process.port), timeout=30) as client:
            client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % (PREDICT.encode(), size))
            while num_bytes < SENT_BYTES:
                client.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
                num_bytes += len(piece)
            reply = client.recv(65536)
        grown = process.kilobytes("VmHWM") - before
        print(f"{num_bytes >> 20} MB sent, {grown} kB more at most")
        assert reply.startswith(b"HTTP/1.1 413")
        assert grown < 8 * MAX_BYTES // 1024
        process.assert_served()


def test_gzip_bombs_stay_within_the_bound_of_all_bodies() -> None:
    bomb = gzip.compress(bytes(MAX_BYTES - 1000) + b" ", mtime=0)
    with serving(MAX_BYTES) as process, process.connect() as client:
        before = process.kilobytes("VmHWM")
        for _ in range(100):
            client.request("POST", PREDICT, bomb, {"Content-Encoding": "gzip"})
            assert client.getresponse().read().startswith(b'{\n    "error"')
        grown = process.kilobytes("VmHWM") - before
        print(f"{grown} kB more at most for bombs")
        assert grown < 16 * MAX_BYTES // 1024
        process.assert_served()
