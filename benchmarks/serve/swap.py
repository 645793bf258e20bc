"""Versions of a model that take over from one another while clients ask for it.

    python -m benchmarks.serve.swap [--swaps 5] [--layers 150] [--without segments|stub|freeze]

A server in a process of its own, asked over REST and gRPC at half of what it can answer. Told
are, for each face: requests, failures, and the 99th percentile of the time from when a request
was due, before the swaps, while versions load, and between the loads. The last is the control: its
ratio to the first is what the machine does by itself. Python's longest standstill is told likewise
(see `benchmarks.serve.standstill`). --without switches off one part of the loading, for the
ablations in docs/performance.md.
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

from benchmarks.serve import rpc_program
from benchmarks.serve.standstill import PARTS
from server.process import ports

TARGET = 3.0
WIDTH = 64
_HOST = "127.0.0.1"
_MODEL = "half"
_METHOD = "/tensorflow.serving.PredictionService/Predict"
_BODY = b'{"instances": [1.0, 2.0, 5.0]}'
_POLL_SECONDS = 0.05

Ask = Callable[[], None]
Spans = list[tuple[float, float]]


@dataclass
class Client:
    """One that asks at a steady rate.

    Attributes:
      answered: when each request was due, and the seconds from then to its answer.
      failed: what went wrong.
    """

    name: str
    ask: Ask
    answered: list[tuple[float, float]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def capacity(self, seconds: float) -> int:
        """How many requests are answered in a time, one after another."""
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.ask()
            count += 1
        return count

    def keep_asking(self, interval: float, is_over: threading.Event) -> None:
        """Asks every so many seconds; who is late asks at once, and it counts as late."""
        due = time.perf_counter()
        while not is_over.is_set():
            time.sleep(max(0, due - time.perf_counter()))
            try:
                self.ask()
                self.answered.append((due, time.perf_counter() - due))
            except Exception as error:
                self.failed.append(repr(error))
            due += interval


def save_model(directory: Path, layers: int) -> None:
    """Writes half-plus-two that goes through so many layers, all of them zero, as well."""
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
    """Makes a version appear at once, as an exporter does."""
    shutil.copytree(source, base / "being-copied")
    (base / "being-copied").rename(base / str(version))


@contextmanager
def serving(
    base: Path, *flags: str, watch: Path | None = None, without: Sequence[str] = ()
) -> Iterator[tuple[int, int]]:
    """A running server, ended for certain on leaving: its ports for gRPC and REST.

    Args:
      watch: where Python's standstills are written to.
      without: the parts of the loading to switch off; needs `watch`.
    """
    program = ["tpuserve"] if watch is None else ["benchmarks.serve.standstill", str(watch)]
    for part in without:
        program += ["--without", part]
    held = [ports.bind_port(_HOST, 0, "--port") for _ in range(2)]
    rpc, rest = (int(each.getsockname()[1]) for each in held)
    for each in held:
        each.close()
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
        # What it says later must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield rpc, rest
    finally:
        process.kill()
        process.wait()


def ask_rest(connection: http.client.HTTPConnection) -> None:
    """One request over REST; fails unless the answer is right."""
    connection.request("POST", f"/v1/models/{_MODEL}:predict", _BODY)
    found = json.loads(connection.getresponse().read())
    if found != {"predictions": [2.5, 3.0, 4.5]}:
        raise ValueError(found)


def ask_grpc(predict: Callable[..., bytes], request: bytes) -> None:
    """One request over gRPC; fails unless the answer is right."""
    values = np.array([2.5, 3.0, 4.5], np.float32).tobytes()
    found = predict(request, timeout=30)
    if values not in found:
        raise ValueError(found)


def swap(rest: int, source: Path, base: Path, version: int) -> tuple[float, float]:
    """Publishes a version; when it began to load, and when the one before was gone."""
    publish(source, base, version)
    began = None
    while True:
        time.sleep(_POLL_SECONDS)
        states = _states(rest)
        if began is None and str(version) in states:
            began = time.perf_counter() - _POLL_SECONDS
        if began and states.get(str(version)) == "AVAILABLE" and states[str(version - 1)] == "END":
            return began, time.perf_counter()


def _states(rest: int) -> dict[str, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{_HOST}:{rest}/v1/models/{_MODEL}", timeout=30) as reply:
        found: list[Any] = json.load(reply)["model_version_status"]
    return {each["version"]: each["state"] for each in found}


def report(client: Client, spans: dict[str, Spans]) -> float:
    """Prints what a client has seen; the ratio of the percentiles."""
    seen = {
        when: [record * 1000 for due, record in client.answered if _is_in(due, those)]
        for when, those in spans.items()
    }
    p99 = {when: float(np.percentile(each, 99)) for when, each in seen.items()}
    p50 = {when: statistics.median(each) for when, each in seen.items()}
    ratio = p99["loading"] / p99["before"]
    print(
        f"  {client.name:5} {len(client.answered):6} requests, {len(client.failed)} failed; "
        f"p50 {p50['before']:.2f} -> {p50['loading']:.2f} ms, "
        f"p99 {p99['before']:.2f} -> {p99['loading']:.2f} ms, ratio {ratio:.2f} "
        f"(control {p99['between'] / p99['before']:.2f}); "
        f"worst {max(seen['before']):.0f} -> {max(seen['loading']):.0f} ms"
    )
    for each in sorted(set(client.failed)):
        print(f"    failed: {each}")
    return ratio


def report_standstills(path: Path, spans: dict[str, Spans]) -> None:
    """Prints how long Python stood still at most."""
    seen = [(float(end), float(late)) for end, late in map(str.split, path.open())]
    longest = {
        when: max((late * 1000 for end, late in seen if _is_in(end, those)), default=0)
        for when, those in spans.items()
    }
    shown = ", ".join(f"{when} {each:.1f} ms" for when, each in longest.items())
    print(f"  Python's longest standstill: {shown}")


def _is_in(time: float, spans: Spans) -> bool:
    return any(begin <= time <= end for begin, end in spans)


def main() -> None:
    """Measures, and prints percentiles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--swaps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=8, help="of load before the first swap")
    parser.add_argument("--without", action="append", choices=sorted(PARTS), default=[])
    parser.add_argument("flags", nargs="*", help="of the server, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        source, base = Path(temporary) / "source", Path(temporary) / "base"
        save_model(source, arguments.layers)
        publish(source, base, 1)
        watch = Path(temporary) / "standstills"
        rpc, rest = stack.enter_context(
            serving(base, *arguments.flags, watch=watch, without=arguments.without)
        )
        channel = stack.enter_context(grpc.insecure_channel(f"{_HOST}:{rpc}"))
        predict, request = (
            channel.unary_unary(_METHOD),
            rpc_program.serialize_request([1.0, 2.0, 5.0]),
        )
        connection = http.client.HTTPConnection(_HOST, rest, timeout=30)
        clients = [
            Client("REST", lambda: ask_rest(connection)),
            Client("gRPC", lambda: ask_grpc(predict, request)),
        ]
        spans = _measure(clients, arguments, rest, source, base)
        for each in clients:
            report(each, spans)
        report_standstills(watch, spans)


def _measure(
    clients: list[Client], arguments: argparse.Namespace, rest: int, source: Path, base: Path
) -> dict[str, Spans]:
    """Asks while versions are swapped; when was what."""
    for each in clients:
        each.capacity(1)
    rates = _both(clients)
    # Each asks for half of what it gets when both ask for all they can.
    intervals = [2 / rate for rate in rates]
    is_over = threading.Event()
    threads = [
        threading.Thread(target=each.keep_asking, args=(interval, is_over))
        for each, interval in zip(clients, intervals, strict=True)
    ]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    try:
        time.sleep(arguments.seconds)
        end = time.perf_counter()
        loads, pauses = [], []
        for version in range(2, 2 + arguments.swaps):
            loads.append(swap(rest, source, base, version))
            # As long as the load, after what the load has kept waiting.
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


def _both(clients: list[Client]) -> list[float]:
    """Requests a second of each while all ask for as much as they can."""
    seconds = 3.0
    found: dict[str, float] = {}

    def work(client: Client) -> None:
        found[client.name] = client.capacity(seconds) / seconds

    threads = [threading.Thread(target=work, args=(each,)) for each in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[each.name] for each in clients]


if __name__ == "__main__":
    main()
