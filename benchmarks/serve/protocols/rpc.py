"""Compares predict over gRPC with a plain grpcio server that echoes messages of the same size.

    python -m benchmarks.serve.protocols.rpc [--rounds 5]

The servers take turns, so that other programs of the machine affect all servers equally. The report
contains the processor time of each server as well, because the client uses the same processors.

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

from benchmarks.serve.protocols import rpc_program
from benchmarks.serve.turns import process_cpu_seconds

SIDES = ("echo", "echo with protos", "ours")
BASELINE = "echo"
TARGET = 0.8
_METHOD = "/tensorflow.serving.PredictionService/Predict"


@dataclass(frozen=True)
class Load:
    """The requests of one turn.

    Attributes:
      title: The title in the report.
      values: The number of float32 values in each request.
      requests: The number of requests.
    """

    title: str
    values: int
    requests: int


LOADS = (
    Load("half-plus-two, 3 floats", 3, 12_000),
    Load("an image, 150,528 floats", 150_528, 1_200),
)


@dataclass
class Side:
    """A server in a subprocess."""

    name: str
    port: int
    pid: int


@dataclass(frozen=True)
class Turn:
    """The figures of one turn."""

    requests_per_second: float
    cpu_us_per_request: float


@contextmanager
def serving(name: str) -> Iterator[Side]:
    """Run a server in a subprocess, and kill the subprocess on exit."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve.protocols.rpc_program", name],
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


def measure(side: Side, load: Load, body: Path) -> Turn:
    """Send the requests of a turn with h2load.

    Args:
      side: The server.
      load: The requests.
      body: A file with the length-prefixed message of a request.
    """
    check_response(side, load)
    cpu_before = process_cpu_seconds(side.pid)
    finished = subprocess.run(
        ["h2load", "-n", str(load.requests), "-c", "4", "-m", "4", "-d", str(body)]
        + ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        + [f"http://127.0.0.1:{side.port}{_METHOD}"],
        capture_output=True,
        text=True,
        check=True,
    )
    cpu_us = (process_cpu_seconds(side.pid) - cpu_before) / load.requests * 1e6
    rate = re.search(r"([\d.]+) req/s", finished.stdout)
    assert rate is not None
    assert f"{load.requests} succeeded" in finished.stdout, finished.stdout
    return Turn(float(rate[1]), cpu_us)


def check_response(side: Side, load: Load) -> None:
    """Raise AssertionError if a response has the wrong size: h2load counts any response."""
    options = [("grpc.max_receive_message_length", -1)]
    request = rpc_program.linear_request(load.values)
    with grpc.insecure_channel(f"127.0.0.1:{side.port}", options) as channel:
        response = channel.unary_unary(_METHOD)(request, timeout=30)
    expected = len(rpc_program.echo_response(request))
    assert len(response) == expected, f"{side.name}: {len(response)} bytes, not {expected}"


def main() -> None:
    """Measure all servers with all loads, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is not installed. Install it: apt-get install nghttp2-client")
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        sides = [stack.enter_context(serving(name)) for name in SIDES]
        for load in LOADS:
            body = Path(temporary) / "body"
            raw = rpc_program.linear_request(load.values)
            body.write_bytes(b"\0" + len(raw).to_bytes(4, "big") + raw)
            turns: dict[str, list[Turn]] = {name: [] for name in SIDES}
            for _ in range(arguments.rounds):
                for side in sides:
                    turns[side.name].append(measure(side, load, body))
            print_report(load, turns)


def print_report(load: Load, turns: dict[str, list[Turn]]) -> None:
    """Print the medians of each server, and the ratios to the baseline in the same round."""
    print(f"\n{load.title}")
    for name in turns:
        rates = [turn.requests_per_second for turn in turns[name]]
        cpu_us = [turn.cpu_us_per_request for turn in turns[name]]
        base_cpu_us = [turn.cpu_us_per_request for turn in turns[BASELINE]]
        cpu_ratios = [cpu / base for cpu, base in zip(cpu_us, base_cpu_us, strict=True)]
        print(
            f"  {name:18} {statistics.median(rates):8.0f} requests/s  "
            f"{statistics.median(cpu_us):7.0f} us of processor time per request  ratios: "
            f"requests/s {_format_ratios(_rate_ratios(turns, name))}, "
            f"processor time {_format_ratios(cpu_ratios)}"
        )
    is_reached = statistics.median(_rate_ratios(turns, "ours")) >= TARGET
    verdict = "reached" if is_reached else "missed"
    print(f"  target of {TARGET} of the requests/s of {BASELINE}: {verdict}")


def _rate_ratios(turns: dict[str, list[Turn]], name: str) -> list[float]:
    """Return the rate of a server divided by the rate of the baseline, in each round."""
    rounds = zip(turns[name], turns[BASELINE], strict=True)
    return [turn.requests_per_second / base.requests_per_second for turn, base in rounds]


def _format_ratios(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
