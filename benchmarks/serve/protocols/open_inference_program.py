"""Serves a model of images over REST and gRPC in a process of its own.

The argument is not used. The program prints the port of REST, and then the port of gRPC in a line
of its own. It serves until its standard input ends.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.grpc.server import GrpcServer
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.server import RestServer
from server.models.manager import Manager
from server.process import malloc, ports
from server.servables.servable import Array
from tpuserve.saved_model.signature import Signature, TensorSpec

LOOPBACK = "127.0.0.1"


class ImageModel:
    """Returns the first pixel of each image, so that the protocol takes nearly all of the time."""

    choice = "{serve} on CPU (a fake)"
    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            {"x": TensorSpec("x:0", "float32", (None, 224, 224, 3))},
            {"y": TensorSpec("y:0", "float32", (None, 3))},
        )
    }
    signature_defs: Mapping[str, Any] = {"serving_default": b""}

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        **options: Any,
    ) -> dict[str, Array]:
        """Return "y": float32 [b, 3], for "x": float32 [b, 224, 224, 3]."""
        return {"y": inputs["x"][:, 0, 0, :]}

    def close(self) -> None:
        """Do nothing: the model holds no resources."""


def main() -> None:
    """Serve until the standard input ends."""
    malloc.configure_malloc()
    manager = Manager(lambda directory: ImageModel())
    manager.set_aspired_versions("image", {1: Path("/models/image/1")})
    manager.wait(lambda: manager.is_available("image"))
    dataplane = DataPlane(manager)
    settings = Settings(Path("/models/image"))
    with (
        ports.bind_port(LOOPBACK, 0, "--rest_api_port") as listener,
        ports.bind_port(LOOPBACK, 0, "--port") as reserved,
    ):
        rest = RestServer(build_rest_app(dataplane, settings), listener, 1, sys.exit)
        grpc_port = reserved.getsockname()[1]
        grpc = GrpcServer(dataplane, LOOPBACK, grpc_port, 1, settings)
        rest.start()
        grpc.start()
        print(listener.getsockname()[1], grpc_port, sep="\n", flush=True)
        sys.stdin.read()
        for frontend in (rest, grpc):
            frontend.stop()
            frontend.join()


if __name__ == "__main__":
    main()
