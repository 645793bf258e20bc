"""Runs a gRPC server of both benchmark models: prints its port, and serves until its input ends.

    python -m benchmarks.serve.protocols.grpc_executor_program with|without

"with" polls grpcio's completion queue in the server's threads. "without" uses the thread pool on
grpcio's public API.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.serve import models
from server.admission.admission import AdmissionController
from server.dataplane import DataPlane
from server.frontends.grpc.server import GrpcServer
from server.metrics import Metrics
from server.models.manager import Manager
from server.process import ports
from tpuserve.runtime import loader

_HOST = "127.0.0.1"


def main() -> None:
    """Serve until standard input ends."""
    variant = sys.argv[1]
    with ports.bind_port(_HOST, 0, "--port") as reserved:
        port = int(reserved.getsockname()[1])
    metrics = Metrics()
    with tempfile.TemporaryDirectory() as temporary:
        manager = Manager(lambda path: loader.load(path))
        for name, save in (
            ("half_plus_two", models.save_half_plus_two),
            ("mnist_cnn", models.save_mnist_cnn),
        ):
            directory = Path(temporary) / name / "1"
            save(directory)
            manager.set_aspired_versions(name, {1: directory})
            manager.wait(partial(manager.is_available, name))
        server = GrpcServer(
            DataPlane(manager, metrics=metrics),
            _HOST,
            port,
            grace_seconds=1,
            admission=AdmissionController(1000),
            metrics=metrics,
            allow_direct_polling=variant != "without",
        )
        server.start()
        print(port, flush=True)
        sys.stdin.read()
        server.stop()
        server.join()


if __name__ == "__main__":
    main()
