"""Proves that NVIDIA's perf_analyzer finds stable windows over HTTP and gRPC.

    python -m benchmarks.serve.clients.perf_analyzer [--rounds 5] [--clients 2] [--seconds 2]
        [--tolerance 10] [--trials 10]

The server is `tpuserve serve` with a CNN for MNIST, whose run of 8 images takes most of the time
of a request. In each round, perf_analyzer measures the Open Inference Protocol over HTTP and over
gRPC, and TensorFlow Serving's API over gRPC. It reports figures only if three windows in a row
agree: their requests per second and their mean latencies are within the tolerance, in percent, of
their means. The benchmark prints how many rounds were stable, and their figures.

perf_analyzer is set up by `make .venv-perf/stamp`; see tools/perf_analyzer.py.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tpuserve
from benchmarks.serve import models
from tools.perf_analyzer import Report, find_perf_analyzer, run_perf_analyzer
from tpuserve.local_server.server import LocalServer

MODEL = "cnn"
ROWS = 8


def protocol_arguments(server: LocalServer) -> dict[str, list[str]]:
    """Return the arguments of perf_analyzer for each protocol of a server: title → arguments."""
    rest, rpc = (url.split("://")[1] for url in (server.rest_url, server.grpc_url))
    serving = ["--service-kind", "tfserving", "--model-signature-name", "serving_default"]
    return {
        "Open Inference Protocol, HTTP": ["-i", "http", "-u", rest, "-b", str(ROWS)],
        "Open Inference Protocol, gRPC": ["-i", "grpc", "-u", rpc, "-b", str(ROWS)],
        # Without Triton's configuration of the model, the shape has the rows.
        "TensorFlow Serving's API, gRPC": [
            *serving,
            *("-i", "grpc", "-u", rpc, "--shape", f"x:{ROWS},28,28,1"),
        ],
    }


def print_report(title: str, reports: Sequence[Report]) -> None:
    """Print how many rounds of a protocol were stable, and the figures of these rounds."""
    stable = [report for report in reports if report.is_stable]
    line = f"{title}: {len(stable)} of {len(reports)} rounds stable"
    if stable:
        rates = [report.requests_per_second for report in stable]
        latencies = [report.mean_ms for report in stable]
        line += (
            f"; requests/s {statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f}), "
            f"mean latency {statistics.median(latencies):.2f} ms "
            f"({min(latencies):.2f} to {max(latencies):.2f})"
        )
    print(line)


def main() -> None:
    """Measure, and print how many rounds were stable."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="length of a window")
    parser.add_argument("--tolerance", type=int, default=10)
    parser.add_argument("--trials", type=int, default=10, help="largest number of windows")
    arguments = parser.parse_args()
    if find_perf_analyzer() is None:
        sys.exit("no perf_analyzer starts. Run `make .venv-perf/stamp`.")
    measuring = [
        *("-m", MODEL, "--concurrency-range", str(arguments.clients)),
        *("--measurement-interval", str(round(arguments.seconds * 1000))),
        *("-s", str(arguments.tolerance), "-r", str(arguments.trials)),
    ]
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary, MODEL)
        models.save_mnist_cnn(base / "1")
        reports: dict[str, list[Report]] = {}
        with tpuserve.serve({MODEL: base}) as server:
            for _ in range(arguments.rounds):
                for title, protocol in protocol_arguments(server).items():
                    report = run_perf_analyzer(*measuring, *protocol)
                    reports.setdefault(title, []).append(report)
    print(f"load average {os.getloadavg()[0]:.1f}")
    for title, measured in reports.items():
        print_report(title, measured)


if __name__ == "__main__":
    main()
