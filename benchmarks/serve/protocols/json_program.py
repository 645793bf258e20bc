"""Runs one server of the JSON benchmark: prints its port, and serves until its input ends.

The argument is "plain", for the json module and numpy, or "ours", for the server's codec.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serve.protocols.rest_program import read_body, send_json
from server.admission.cancellation import Cancellation
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.server import RestServer
from server.metrics import Metrics
from server.models.manager import Manager
from server.process import malloc, ports
from server.servables.servable import Array
from tpuserve.saved_model.signature import Signature, TensorSpec

_HOST = "127.0.0.1"


def first_thousand(images: Array) -> Array:
    """Return the first thousand values of each image. Both servers have this model.

    Args:
      images: Shape [n, 224, 224, 3].

    Returns:
      Scores of shape [n, 1000], the size of the response of an image classifier.
    """
    return images.reshape(len(images), -1)[:, :1000]


class ThousandScoresModel:
    """Implements the server's model protocol with `first_thousand`."""

    choice = "numpy"
    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            {"x": TensorSpec("x:0", "float32", (None, 224, 224, 3))},
            {"y": TensorSpec("y:0", "float32", (None, 1000))},
        )
    }
    signature_defs: Mapping[str, Any] = {}

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        """Return the scores y of the images x."""
        return {"y": first_thousand(inputs["x"])}

    def close(self) -> None:
        """Do nothing: the model holds no resources."""


async def plain_app(scope: Any, receive: Any, send: Any) -> None:
    """Answer a predict request with the json module and numpy, as an ASGI application."""
    array = np.array(json.loads(await read_body(receive))["instances"], np.float32)
    await send_json(send, json.dumps({"predictions": first_thousand(array).tolist()}).encode())


def build_server_app() -> Any:
    """Build the REST application of the server with the model."""
    manager = Manager(lambda path: ThousandScoresModel())
    manager.set_aspired_versions("half", {1: Path("/models/scores/1")})
    manager.wait(lambda: manager.matches_aspired("half"))
    metrics = Metrics()
    return build_rest_app(DataPlane(manager, metrics=metrics), metrics=metrics)


def main() -> None:
    """Serve until standard input ends."""
    # Configure malloc as `server.app` does for a real server.
    malloc.configure_malloc()
    app = plain_app if sys.argv[1] == "plain" else build_server_app()
    with ports.bind_port(_HOST, 0, "--rest_api_port") as listener:
        server = RestServer(app, listener, 1, partial(print, file=sys.stderr))
        server.start()
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()
        server.stop()
        server.join()


if __name__ == "__main__":
    main()
