"""Sends requests as fast as possible with h2load, over REST or gRPC, and reads its figures."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serve import turns

PREDICT_METHOD = "/tensorflow.serving.PredictionService/Predict"
# The duration of the warm-up before each measurement, in seconds. The server adapts to the load,
# and the requests are not counted.
_WARM_UP_SECONDS = 2


@dataclass(frozen=True)
class Target:
    """A method of a server, and the file with the body of its requests.

    Attributes:
      url: The URL of the method.
      body: A file with the body of a request. For gRPC, the message is length-prefixed.
      is_grpc: Whether the requests are gRPC calls.
      pid: The process ID of the server's first process.
    """

    url: str
    body: Path
    is_grpc: bool
    pid: int


@dataclass(frozen=True)
class Figures:
    """The figures of one measurement.

    Attributes:
      requests_per_second: The requests per second of all clients together.
      p99_ms: The 99th percentile of the response times, in milliseconds.
      cpu_us: The processor time of the server's processes for each request, in microseconds. Other
        programs of the machine change it less than the other figures.
    """

    requests_per_second: float
    p99_ms: float
    cpu_us: float


def write_grpc_body(path: Path, message: bytes) -> None:
    """Write a serialised message to a file in the form in which gRPC sends the message."""
    path.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)


def write_json_body(path: Path, body: object) -> None:
    """Write a JSON value to a file."""
    path.write_text(json.dumps(body))


def measure(target: Target, clients: int, seconds: int, log: Path) -> Figures:
    """Send requests from several clients, each of which waits for its response, and measure.

    Args:
      target: The method, whose responses the caller has checked: h2load counts gRPC errors as
        successes.
      clients: The number of clients and of connections.
      seconds: The duration of the measurement.
      log: A file for the response times, which is overwritten.

    Raises:
      RuntimeError: A request failed.
    """
    log.unlink(missing_ok=True)
    before = turns.cpu_seconds(target.pid)
    grpc_headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    finished = subprocess.run(
        [
            *("h2load", "--clients", str(clients), "--duration", str(seconds)),
            *("--warm-up-time", str(_WARM_UP_SECONDS), "--log-file", str(log)),
            *("--data", str(target.body)),
            *(grpc_headers if target.is_grpc else ["--h1"]),
            target.url,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    # h2load logs the status 0 for a request that is under way when the warm-up ends.
    rows = [row for row in rows if row[1] != "0"]
    statuses = {row[1] for row in rows}
    if statuses != {"200"}:
        raise RuntimeError(f"{target.url} answered with status {statuses}:\n{finished.stdout}")
    latencies_us = sorted(int(row[2]) for row in rows)
    p99_us = latencies_us[99 * len(latencies_us) // 100]
    requests_per_second = len(rows) / seconds
    # h2load does not report the number of requests in the warm-up. Assume as many per second as in
    # the measurement.
    num_requests = requests_per_second * (seconds + _WARM_UP_SECONDS)
    cpu_us = (turns.cpu_seconds(target.pid) - before) / num_requests * 1e6
    return Figures(requests_per_second, p99_us / 1000, cpu_us)
