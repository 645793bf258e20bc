"""Predict over gRPC against a bare grpcio server that echoes the same messages.

    python -m benchmarks.serve.rpc [--rounds 5]

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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.serve import rpc_program

SIDES = ("echo", "echo with protos", "ours")
BASELINE = "echo"
TARGET = 0.8
_METHOD = "/tensorflow.serving.PredictionService/Predict"


@dataclass(frozen=True)
class Load:
    """What is asked of each side in one turn."""

    title: str
    values: int
    requests: int


LOADS = (
    Load("half-plus-two, 3 floats", 3, 12_000),
    Load("an image, 150,528 floats", 150_528, 1_200),
)


@dataclass
class Side:
    """A server in a process of its own."""

    name: str
    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """The processor time it has taken so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(name: str) -> Iterator[Side]:
    """A running side, ended for certain on leaving."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve.rpc_program", name],
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


def measure(side: Side, load: Load, body: Path) -> tuple[float, float]:
    """Requests a second, and microseconds of the server's processors per request."""
    check(side, load)
    before = side.cpu_seconds()
    done = subprocess.run(
        ["h2load", "-n", str(load.requests), "-c", "4", "-m", "4", "-d", str(body)]
        + ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        + [f"http://127.0.0.1:{side.port}{_METHOD}"],
        capture_output=True,
        text=True,
        check=True,
    )
    cpu = (side.cpu_seconds() - before) / load.requests * 1e6
    found = re.search(r"([\d.]+) req/s", done.stdout)
    assert found is not None
    assert f"{load.requests} succeeded" in done.stdout, done.stdout
    return float(found[1]), cpu


def check(side: Side, load: Load) -> None:
    """Fails unless one reply is right: h2load takes any for a success."""
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{side.port}", options) as channel:
        reply = channel.unary_unary(_METHOD)(rpc_program.request(load.values), timeout=30)
    expected = len(rpc_program.reply(rpc_program.request(load.values)))
    assert len(reply) == expected, f"{side.name}: {len(reply)} bytes, not {expected}"


def main() -> None:
    """Measures, and prints ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is not there. Install it: apt-get install nghttp2-client")
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        sides = [stack.enter_context(serving(each)) for each in SIDES]
        for load in LOADS:
            body = Path(temporary) / "body"
            raw = rpc_program.request(load.values)
            body.write_bytes(b"\0" + len(raw).to_bytes(4, "big") + raw)
            found: dict[str, list[tuple[float, float]]] = {each: [] for each in SIDES}
            for _ in range(arguments.rounds):
                for side in sides:
                    found[side.name].append(measure(side, load, body))
            report(load, found)


def report(load: Load, found: dict[str, list[tuple[float, float]]]) -> None:
    """Prints medians, and the ratios to the baseline in the same round."""
    print(f"\n{load.title}")
    for name, turns in found.items():
        rounds = list(zip(turns, found[BASELINE], strict=True))
        rate = statistics.median(each[0] for each in turns)
        cpu = statistics.median(each[1] for each in turns)
        print(
            f"  {name:18} {rate:8.0f} requests/s  {cpu:7.0f} us of processor each  ratios: "
            f"requests/s {_shown([mine[0] / base[0] for mine, base in rounds])}, "
            f"processor {_shown([mine[1] / base[1] for mine, base in rounds])}"
        )
    ours = found["ours"], found[BASELINE]
    rates = [mine[0] / base[0] for mine, base in zip(*ours, strict=True)]
    verdict = "reached" if statistics.median(rates) >= TARGET else "missed"
    print(f"  target of {TARGET} of the requests/s of {BASELINE}: {verdict}")


def _shown(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
