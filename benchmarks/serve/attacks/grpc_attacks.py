"""Measures how fast gRPC health checks are answered while clients attack the server.

    python -m benchmarks.serve.attacks.grpc_attacks [--seconds=10]

Each attack comes from a process of its own: calls without a message, compressed messages that
inflate a thousandfold, small messages that describe large tensors, and messages of many empty
strings or dimensions. The program prints the median, the 99th percentile and the maximum of the
health checks' times, and the largest memory that the server's first process has had so far.
docs/performance.md has the results.
"""

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.serve.models import save_half_plus_two
from tests.processes import LOOPBACK, free_ports
from tpuserve.proto import protobuf_wire

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_THREADS = 8
_PROBE_SECONDS = 0.01
_MB = 1 << 20


# The numbers of DT_FLOAT and DT_STRING.
_FLOAT, _STRING = 1, 7


def _field(number: int, content: bytes) -> bytes:
    return protobuf_wire.encode_field(protobuf_wire.field_tag(number), content)


def _predict_request(dtype: int, shape: bytes = b"", values: bytes = b"") -> bytes:
    """Serialise a PredictRequest for the model "half", without TensorFlow's slow import.

    Args:
      dtype: the number of the tensor's dtype.
      shape: the serialised dimensions.
      values: the serialised fields with the values.
    """
    tensor = bytes((0x08, dtype)) + _field(2, shape) + values
    return _field(1, _field(1, b"half")) + _field(2, _field(1, b"x") + _field(2, tensor))


def _send_repeatedly(address: str, message: bytes) -> None:
    """Send a message again and again, from `_THREADS` threads with a connection each."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]

    def send() -> None:
        with grpc.insecure_channel(address, options) as channel:
            while True:
                channel.unary_unary(_PREDICT).future(message).exception()

    for _ in range(_THREADS):
        threading.Thread(target=send, daemon=True).start()
    threading.Event().wait()


def send_calls_without_message(address: str) -> None:
    """Begin 1,000 calls without a message on one connection, and begin them again when they end."""

    def nothing() -> Iterator[bytes]:
        threading.Event().wait()
        yield from ()

    with grpc.insecure_channel(address) as channel:
        method = channel.stream_unary(_PREDICT)
        free = threading.Semaphore(1000)
        while True:
            free.acquire()
            method.future(nothing()).add_done_callback(lambda _: free.release())


def send_compressed(address: str) -> None:
    """Send compressed messages of 90 KB that inflate to 90 MB."""
    message = _predict_request(_FLOAT, values=_field(4, bytes(90 * _MB)))
    _send_repeatedly(address, zlib.compress(message, 9))


def send_large_shapes(address: str) -> None:
    """Send messages of some bytes that describe tensors of 240 MB."""
    dimension = b"\x08" + protobuf_wire.encode_varint(60 * _MB)
    _send_repeatedly(address, _predict_request(_FLOAT, shape=_field(2, dimension)))


def send_strings(address: str) -> None:
    """Send messages of 20 MB with ten million empty strings."""
    _send_repeatedly(address, _predict_request(_STRING, values=_field(8, b"") * (10 * _MB)))


def send_dimensions(address: str) -> None:
    """Send messages of 20 MB with ten million dimensions."""
    _send_repeatedly(address, _predict_request(_FLOAT, shape=_field(2, b"") * (10 * _MB)))


def send_nothing(address: str) -> None:
    """Do nothing, for the figures without an attack."""


_ATTACKS: dict[str, Callable[[str], None]] = {
    "none": send_nothing,
    "calls without a message": send_calls_without_message,
    "compressed messages": send_compressed,
    "large shapes": send_large_shapes,
    "empty strings": send_strings,
    "dimensions": send_dimensions,
}


def measure_checks(address: str, seconds: float) -> list[float]:
    """Send health checks for some seconds, and return the time of each in milliseconds."""
    request, times_ms = health_pb2.HealthCheckRequest(), []
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        stub.Check(request, timeout=60, wait_for_ready=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            stub.Check(request, timeout=60)
            times_ms.append((time.perf_counter() - begin) * 1000)
            time.sleep(_PROBE_SECONDS)
    return times_ms


def peak_megabytes(pid: int) -> float:
    """Return the largest memory that a process has had, in megabytes."""
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    ]
    return int(line.split()[1]) / 1024


def main() -> None:
    """Start the server, and measure the health checks during each attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        exporting = spawn.Process(target=save_half_plus_two, args=(Path(directory) / "1",))
        exporting.start()
        exporting.join()
        (port,) = free_ports(1)
        address = f"{LOOPBACK}:{port}"
        command = [sys.executable, "-m", "tpuserve", "serve", "--enable_grpc_healthcheck_service"]
        command += ["--host", LOOPBACK, f"--port={port}", "--rest_api_port=0", "--model_name=half"]
        command.append(f"--model_base_path={directory}")
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            try:
                for name, attack in _ATTACKS.items():
                    measure_checks(address, 1)
                    attacker = spawn.Process(target=attack, args=(address,), daemon=True)
                    attacker.start()
                    times = sorted(measure_checks(address, arguments.seconds))
                    attacker.kill()
                    attacker.join()
                    p99 = statistics.quantiles(times, n=100)[98]
                    print(
                        f"{name:24} p50 {statistics.median(times):6.1f} ms  p99 {p99:7.1f} ms  "
                        f"max {times[-1]:7.1f} ms  peak {peak_megabytes(server.pid):6.0f} MB",
                        flush=True,
                    )
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
