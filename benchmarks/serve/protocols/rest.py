"""Compares predict over REST with a minimal ASGI echo server.

The server is measured with and without its fast path, which answers small requests without uvicorn,
and with all requests in threads, none in the event loop.

    python -m benchmarks.serve.protocols.rest [--rounds 5]

The echo server uses the same uvicorn. The servers take turns, so that other programs of the machine
affect all servers equally. The output includes the processor time of each server, because the
client uses the same processors.

Needs h2load (Debian: nghttp2-client).
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

WITHOUT_FAST_PATH = "%s without fast path"
IN_THREADS = "ours in threads"
SIDES = (
    "echo",
    "ours",
    WITHOUT_FAST_PATH % "ours",
    IN_THREADS,
    "ours batched",
    WITHOUT_FAST_PATH % "ours batched",
)
BASELINE = "echo"
TARGET = 0.6
REQUESTS = 40_000
CLIENTS = 8
BODY = b'{"instances": [1.0, 2.0, 5.0]}'
REPLY = b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'


@dataclass
class Side:
    """A server in a subprocess.

    Attributes:
      name: One of `SIDES`, or an argument of another server program.
      port: The port of the REST API.
      pid: The process ID.
    """

    name: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        """The URL of predict."""
        return f"http://127.0.0.1:{self.port}/v1/models/half:predict"

    def cpu_seconds(self) -> float:
        """Return the processor time that the server has used, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(name: str, program: str = "rest_program") -> Iterator[Side]:
    """Run a server in a subprocess, and kill the subprocess on exit.

    Args:
      name: The argument of the server program.
      program: The module of the server program in `benchmarks.serve.protocols`.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.serve.protocols.{program}", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert process.stdout is not None
        yield Side(name, int(process.stdout.readline()), process.pid)
    finally:
        process.kill()
        process.communicate()


def measure(side: Side, requests: int, body: Path) -> tuple[float, float]:
    """Return requests/s, and microseconds of the server's processor time per request."""
    check_responses(side)
    before = side.cpu_seconds()
    finished = subprocess.run(
        ["h2load", "--h1", "-n", str(requests), "-c", str(CLIENTS), "-d", str(body), side.url],
        capture_output=True,
        text=True,
        check=True,
    )
    cpu = (side.cpu_seconds() - before) / requests * 1e6
    match = re.search(r"([\d.]+) req/s", finished.stdout)
    assert match is not None
    assert f"{requests} 2xx" in finished.stdout, finished.stdout
    return float(match[1]), cpu


def check_responses(side: Side) -> None:
    """Raise AssertionError if a response is wrong."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(20):
        with opener.open(side.url, BODY, timeout=30) as response:
            assert response.read() == (BODY if side.name == "echo" else REPLY), side.name


def main() -> None:
    """Measure, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is not installed. Install it: apt-get install nghttp2-client")
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        sides = [stack.enter_context(serving(name)) for name in SIDES]
        body = Path(temporary) / "body"
        body.write_bytes(BODY)
        turns: dict[str, list[tuple[float, float]]] = {name: [] for name in SIDES}
        for _ in range(arguments.rounds):
            for side in sides:
                turns[side.name].append(measure(side, arguments.requests, body))
        print_report(turns)


def print_report(results: dict[str, list[tuple[float, float]]]) -> None:
    """Print medians, and the ratios of figures of the same round.

    Args:
      results: Name of a side → requests/s and microseconds per request, for each round.
    """
    print(f"half-plus-two over REST, 3 floats; target: {TARGET:.0%} of the echo's requests/s")
    for name, turns in results.items():
        pairs = list(zip(turns, results[BASELINE], strict=True))
        rate = statistics.median(turn[0] for turn in turns)
        cpu = statistics.median(turn[1] for turn in turns)
        print(
            f"  {name:32} {rate:7.0f} requests/s, ratio {_spread([m[0] / b[0] for m, b in pairs])}"
            f"; {cpu:4.0f} us of processor time per request, echo's / this "
            f"{_spread([b[1] / m[1] for m, b in pairs])}"
        )
    for name, other, part in (
        ("ours", WITHOUT_FAST_PATH % "ours", "the fast path"),
        ("ours batched", WITHOUT_FAST_PATH % "ours batched", "the fast path"),
        ("ours", IN_THREADS, "the event loop"),
    ):
        pairs = list(zip(results[name], results[other], strict=True))
        print(
            f"  {name}: {part} gives {_spread([m[0] / b[0] for m, b in pairs])} of the requests/s, "
            f"{_spread([m[1] / b[1] for m, b in pairs])} of the processor time"
        )


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
