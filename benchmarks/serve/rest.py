"""Predict over REST against a bare ASGI echo under the same uvicorn.

    python -m benchmarks.serve.rest [--rounds 5]

The sides take turns, so that what else the machine does falls on all of them alike. A server's
own processor time is told too: on a small machine the client takes the rest.

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

SIDES = ("echo", "ours in threads", "ours")
BASELINE = "echo"
TARGET = 0.6
REQUESTS = 40_000
BODY = b'{"instances": [1.0, 2.0, 5.0]}'
REPLY = b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'


@dataclass
class Side:
    """A server in a process of its own."""

    name: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        """Where it predicts."""
        return f"http://127.0.0.1:{self.port}/v1/models/half:predict"

    def cpu_seconds(self) -> float:
        """The processor time it has taken so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(name: str, program: str = "rest_program") -> Iterator[Side]:
    """A running side, ended for certain on leaving."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.serve.{program}", name],
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
    """Requests a second, and microseconds of the server's processors per request."""
    check(side)
    before = side.cpu_seconds()
    done = subprocess.run(
        ["h2load", "--h1", "-n", str(requests), "-c", "16", "-d", str(body), side.url],
        capture_output=True,
        text=True,
        check=True,
    )
    cpu = (side.cpu_seconds() - before) / requests * 1e6
    found = re.search(r"([\d.]+) req/s", done.stdout)
    assert found is not None
    assert f"{requests} 2xx" in done.stdout, done.stdout
    return float(found[1]), cpu


def check(side: Side) -> None:
    """Fails unless replies are right."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(20):
        with opener.open(side.url, BODY, timeout=30) as reply:
            assert reply.read() == (BODY if side.name == "echo" else REPLY), side.name


def main() -> None:
    """Measures, and prints ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is not there. Install it: apt-get install nghttp2-client")
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        sides = [stack.enter_context(serving(each)) for each in SIDES]
        body = Path(temporary) / "body"
        body.write_bytes(BODY)
        found: dict[str, list[tuple[float, float]]] = {each: [] for each in SIDES}
        for _ in range(arguments.rounds):
            for side in sides:
                found[side.name].append(measure(side, arguments.requests, body))
        report(found)


def report(found: dict[str, list[tuple[float, float]]]) -> None:
    """Prints medians, and the ratios to the baseline in the same round."""
    print(f"half-plus-two over REST, 3 floats; wanted: {TARGET:.0%} of the echo's requests/s")
    for name, turns in found.items():
        pairs = list(zip(turns, found[BASELINE], strict=True))
        rate = statistics.median(each[0] for each in turns)
        cpu = statistics.median(each[1] for each in turns)
        print(
            f"  {name:16} {rate:7.0f} requests/s, ratio {_spread([m[0] / b[0] for m, b in pairs])}"
            f"; {cpu:4.0f} us of processor each, echo's over it "
            f"{_spread([b[1] / m[1] for m, b in pairs])}"
        )


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
