"""Calls Predict from several threads as fast as possible, and prints the calls per second.

    python -m benchmarks.serve.protocols.grpc_client PORT REQUEST_FILE SECONDS THREADS

REQUEST_FILE holds a serialised PredictRequest. Each thread has its own channel.
"""

import sys
import threading
import time
from pathlib import Path

import grpc

_METHOD = "/tensorflow.serving.PredictionService/Predict"
_TIMEOUT_SECONDS = 30
_WARM_UP_CALLS = 20


def measure_calls_per_second(
    address: str, request: bytes, seconds: float, thread_count: int
) -> float:
    """Call Predict from several threads, and return the calls per second of all threads.

    Args:
      address: The address of the server, such as "127.0.0.1:8500".
      request: A serialised PredictRequest.
      seconds: The duration of the measurement, after a few calls that are not counted.
      thread_count: The number of threads and channels.
    """
    counts = [0] * thread_count
    is_warm = threading.Barrier(thread_count + 1)
    is_over = threading.Event()

    def call_repeatedly(index: int) -> None:
        # Without this option, channels with the same arguments share a connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address, options) as channel:
            predict = channel.unary_unary(_METHOD)
            for _ in range(_WARM_UP_CALLS):
                predict(request, timeout=_TIMEOUT_SECONDS)
            is_warm.wait()
            while not is_over.is_set():
                predict(request, timeout=_TIMEOUT_SECONDS)
                counts[index] += 1

    threads = [
        threading.Thread(target=call_repeatedly, args=[index]) for index in range(thread_count)
    ]
    for thread in threads:
        thread.start()
    is_warm.wait()
    started = time.perf_counter()
    is_over.wait(seconds)
    is_over.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


def main() -> None:
    """Measure, and print the calls per second."""
    port, file, seconds, threads = sys.argv[1:]
    request = Path(file).read_bytes()
    rate = measure_calls_per_second(f"127.0.0.1:{port}", request, float(seconds), int(threads))
    print(rate)


if __name__ == "__main__":
    main()
