"""Measures response times while the server replaces a version of a model by the next version.

    python -m benchmarks.serve.lifecycle.swap [--swaps 5] [--layers 150]
      [--without segments|stub|freeze]

The server is a subprocess. A REST and a gRPC client send requests at half of the rate that the
server can sustain. For each client, the benchmark prints the requests, the failures, and the 99th
percentile of the response time before the swaps, during the loads, and between the loads. A
response time starts when the request is due. The time between the loads is the control: its ratio
to the time before the swaps is the effect of other programs. The benchmark also prints the longest
stall of the Python interpreter (see `benchmarks.serve.lifecycle.stalls`). --without switches off
one part of the loading, for the ablations in docs/performance.md.
"""

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.serve.lifecycle.stalls import PARTS
from benchmarks.serve.protocols import rpc_program
from server.process import ports

TARGET = 3.0
WIDTH = 64
_HOST = "127.0.0.1"
_MODEL = "half"
_METHOD = "/tensorflow.serving.PredictionService/Predict"
_BODY = b'{"instances": [1.0, 2.0, 5.0]}'
_POLL_SECONDS = 0.05

SendRequest = Callable[[], None]
# Begin and end of each period, in seconds of time.perf_counter().
Periods = list[tuple[float, float]]


@dataclass
class Client:
    """Sends requests at a constant rate.

    Attributes:
      name: The name of the protocol.
      send_request: Sends one request, and raises an exception if the response is wrong.
      response_times: For each successful request the due time and the response time, in seconds.
      failures: The exceptions of failed requests, as text.
    """

    name: str
    send_request: SendRequest
    response_times: list[tuple[float, float]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def count_requests(self, seconds: float) -> int:
        """Send requests one after another for a time, and return their number."""
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.send_request()
            count += 1
        return count

    def send_at_rate(self, interval: float, is_over: threading.Event) -> None:
        """Send a request every `interval` seconds until an event is set.

        An overdue request is sent immediately, and its response time includes the delay.
        """
        due = time.perf_counter()
        while not is_over.is_set():
            time.sleep(max(0, due - time.perf_counter()))
            try:
                self.send_request()
                self.response_times.append((due, time.perf_counter() - due))
            except Exception as error:
                self.failures.append(repr(error))
            due += interval


def save_model(directory: Path, layers: int) -> None:
    """Export half-plus-two with a number of additional layers, whose weights are zero.

    The input x and the output y have shape [n].
    """
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        hidden = tf.tile(x[:, None], [1, WIDTH])
        for layer in range(layers):
            weights = tf.get_variable(f"w{layer}", [WIDTH, WIDTH], initializer=tf.zeros_initializer)
            hidden = tf.nn.relu(tf.matmul(hidden, weights))
        y = 0.5 * x + 2.0 + tf.reduce_sum(hidden, 1)
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(directory), {"x": x}, {"y": y})


def publish(source: Path, base: Path, version: int) -> None:
    """Copy a version to the base path and rename the copy, as an exporter does."""
    shutil.copytree(source, base / "being-copied")
    (base / "being-copied").rename(base / str(version))


@contextmanager
def serving(
    base: Path, *flags: str, stalls: Path | None = None, without: Sequence[str] = ()
) -> Iterator[tuple[int, int, int]]:
    """Run a server in a subprocess, and kill the subprocess on exit.

    Args:
      base: The base path of the model.
      *flags: Additional flags of the server.
      stalls: The file for stalls of the interpreter.
      without: The parts of the loading to switch off. Requires `stalls`.

    Yields:
      The gRPC port, the REST port and the process ID.
    """
    program = ["tpuserve"] if stalls is None else ["benchmarks.serve.lifecycle.stalls", str(stalls)]
    for part in without:
        program += ["--without", part]
    reserved = [ports.bind_port(_HOST, 0, "--port") for _ in range(2)]
    rpc, rest = (int(listener.getsockname()[1]) for listener in reserved)
    for listener in reserved:
        listener.close()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", *program, "serve", f"--host={_HOST}", f"--port={rpc}"),
            *(f"--rest_api_port={rest}", f"--model_name={_MODEL}", f"--model_base_path={base}"),
            *flags,
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith(" ready\n"):
                break
        # Read the later log lines in a thread, so that the pipe does not fill up.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield rpc, rest, process.pid
    finally:
        process.kill()
        process.wait()


def send_rest_request(connection: http.client.HTTPConnection) -> None:
    """Send a request over REST.

    Raises:
      ValueError: The response is wrong.
    """
    connection.request("POST", f"/v1/models/{_MODEL}:predict", _BODY)
    response = json.loads(connection.getresponse().read())
    if response != {"predictions": [2.5, 3.0, 4.5]}:
        raise ValueError(response)


def send_grpc_request(predict: Callable[..., bytes], request: bytes) -> None:
    """Send a serialised request over gRPC.

    Raises:
      ValueError: The response is wrong.
    """
    values = np.array([2.5, 3.0, 4.5], np.float32).tobytes()
    response = predict(request, timeout=30)
    if values not in response:
        raise ValueError(response)


def swap_version(rest: int, source: Path, base: Path, version: int) -> tuple[float, float]:
    """Publish a version, and wait until the version replaced the previous version.

    Returns:
      The time at which the load began, and the time at which the previous version was unloaded.
    """
    publish(source, base, version)
    begin = None
    while True:
        time.sleep(_POLL_SECONDS)
        states = _version_states(rest)
        if begin is None and str(version) in states:
            begin = time.perf_counter() - _POLL_SECONDS
        if begin and states.get(str(version)) == "AVAILABLE" and states[str(version - 1)] == "END":
            return begin, time.perf_counter()


def _version_states(rest: int) -> dict[str, str]:
    """Return the state of each version of the model, by its number as text."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{_HOST}:{rest}/v1/models/{_MODEL}", timeout=30) as response:
        statuses: list[Any] = json.load(response)["model_version_status"]
    return {status["version"]: status["state"] for status in statuses}


def print_response_times(client: Client, periods: dict[str, Periods]) -> float:
    """Print the percentiles of a client's response times.

    Args:
      client: The client.
      periods: The periods "before", "loading" and "between".

    Returns:
      The 99th percentile during the loads divided by the 99th percentile before the loads.
    """
    times_ms = {
        name: [seconds * 1000 for due, seconds in client.response_times if _is_in(due, intervals)]
        for name, intervals in periods.items()
    }
    p99 = {name: float(np.percentile(times, 99)) for name, times in times_ms.items()}
    p50 = {name: statistics.median(times) for name, times in times_ms.items()}
    ratio = p99["loading"] / p99["before"]
    print(
        f"  {client.name:5} {len(client.response_times):6} requests, "
        f"{len(client.failures)} failed; "
        f"p50 {p50['before']:.2f} -> {p50['loading']:.2f} ms, "
        f"p99 {p99['before']:.2f} -> {p99['loading']:.2f} ms, ratio {ratio:.2f} "
        f"(control {p99['between'] / p99['before']:.2f}); "
        f"worst {max(times_ms['before']):.0f} -> {max(times_ms['loading']):.0f} ms"
    )
    for failure in sorted(set(client.failures)):
        print(f"    failed: {failure}")
    return ratio


def print_longest_stalls(path: Path, periods: dict[str, Periods]) -> None:
    """Print the longest stall of the interpreter in each kind of period."""
    stalls = [(float(end), float(length)) for end, length in map(str.split, path.open())]
    longest_ms = {
        name: max((length * 1000 for end, length in stalls if _is_in(end, intervals)), default=0)
        for name, intervals in periods.items()
    }
    line = ", ".join(f"{name} {stall_ms:.1f} ms" for name, stall_ms in longest_ms.items())
    print(f"  longest stall of the interpreter: {line}")


def _is_in(time: float, periods: Periods) -> bool:
    return any(begin <= time <= end for begin, end in periods)


def main() -> None:
    """Measure, and print percentiles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--swaps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=150)
    parser.add_argument(
        "--seconds", type=float, default=8, help="duration of the requests before the first swap"
    )
    parser.add_argument("--without", action="append", choices=sorted(PARTS), default=[])
    parser.add_argument("flags", nargs="*", help="flags of the server, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        source, base = Path(temporary) / "source", Path(temporary) / "base"
        save_model(source, arguments.layers)
        publish(source, base, 1)
        stalls = Path(temporary) / "stalls"
        rpc, rest, _ = stack.enter_context(
            serving(base, *arguments.flags, stalls=stalls, without=arguments.without)
        )
        channel = stack.enter_context(grpc.insecure_channel(f"{_HOST}:{rpc}"))
        predict, request = (
            channel.unary_unary(_METHOD),
            rpc_program.serialize_request([1.0, 2.0, 5.0]),
        )
        connection = http.client.HTTPConnection(_HOST, rest, timeout=30)
        clients = [
            Client("REST", lambda: send_rest_request(connection)),
            Client("gRPC", lambda: send_grpc_request(predict, request)),
        ]
        periods = _measure(clients, arguments, rest, source, base)
        for client in clients:
            print_response_times(client, periods)
        print_longest_stalls(stalls, periods)


def _measure(
    clients: list[Client], arguments: argparse.Namespace, rest: int, source: Path, base: Path
) -> dict[str, Periods]:
    """Send requests while versions are swapped.

    Returns:
      The periods "before", "loading" and "between".
    """
    for client in clients:
        client.count_requests(1)
    # Each client sends half of the requests that the server sustains for both clients together.
    rates = _concurrent_rates(clients)
    intervals = [2 / rate for rate in rates]
    is_over = threading.Event()
    threads = [
        threading.Thread(target=client.send_at_rate, args=(interval, is_over))
        for client, interval in zip(clients, intervals, strict=True)
    ]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    try:
        time.sleep(arguments.seconds)
        end = time.perf_counter()
        loads, pauses = [], []
        for version in range(2, 2 + arguments.swaps):
            loads.append(swap_version(rest, source, base, version))
            # Wait for a control period in which no version is loaded. The period is as long as the
            # load, and starts after the requests that the load has delayed.
            time.sleep(0.5)
            paused = time.perf_counter()
            time.sleep(loads[-1][1] - loads[-1][0])
            pauses.append((paused, time.perf_counter()))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    lengths = [after - before for before, after in loads]
    print(
        f"{arguments.layers} layers, {arguments.swaps} swaps of {statistics.median(lengths):.1f} s"
        f" (median), at {1 / intervals[0]:.0f} (REST) and {1 / intervals[1]:.0f} (gRPC) requests/s"
    )
    return {"before": [(begin, end - 0.1)], "loading": loads, "between": pauses}


def _concurrent_rates(clients: list[Client]) -> list[float]:
    """Return the requests per second of each client while all clients send without pauses."""
    seconds = 3.0
    rates: dict[str, float] = {}

    def measure_rate(client: Client) -> None:
        rates[client.name] = client.count_requests(seconds) / seconds

    threads = [threading.Thread(target=measure_rate, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [rates[client.name] for client in clients]


if __name__ == "__main__":
    main()
