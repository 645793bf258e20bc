"""One server of the comparison: prints its port, and serves until its input ends.

Argument: "echo", "ours" or "ours in threads".
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.serve.rpc_program import save_model
from server.frontends.rest.transport.server import RestServer
from server.process import ports

_HOST = "127.0.0.1"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The least that an ASGI application can do with a request's body."""
    await send_json(send, await read_body(receive))


async def read_body(receive: Any) -> bytes:
    """The whole body of a request."""
    pieces = []
    while True:
        message = await receive()
        pieces.append(message["body"])
        if not message["more_body"]:
            return b"".join(pieces)


async def send_json(send: Any, body: bytes) -> None:
    """Answers with a body."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def ours(directory: Path, in_threads: bool) -> Any:
    """Our application, with what a request passes through in it.

    Args:
      in_threads: whether every request is handed to a thread, as where it may wait for others.
    """
    from server.admission.admission import AdmissionController
    from server.config.settings import Settings
    from server.dataplane import DataPlane
    from server.frontends.rest.app import build_rest_app
    from server.metrics import Metrics
    from server.models.manager import Manager
    from tpuserve.runtime import loader

    save_model(directory)
    manager = Manager(lambda path: loader.load(path))
    manager.set_aspired_versions("half", {1: directory})
    manager.wait(lambda: manager.matches_aspired("half"))
    manager.wait(lambda: manager.is_available("half"))
    metrics = Metrics()
    # The data plane runs the model as it is: only where it runs is another.
    settings = Settings(directory.parent, enable_batching=in_threads)
    plane = DataPlane(manager, metrics=metrics)
    return build_rest_app(plane, settings, metrics=metrics, admission=AdmissionController(1000))


def main() -> None:
    """Serves until standard input ends."""
    side = sys.argv[1]
    with (
        tempfile.TemporaryDirectory() as temporary,
        ports.bind_port(_HOST, 0, "--rest_api_port") as listener,
    ):
        app = echo if side == "echo" else ours(Path(temporary) / "1", "threads" in side)
        server = RestServer(app, listener, 1, partial(print, file=sys.stderr))
        server.start()
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()
        server.stop()
        server.join()


if __name__ == "__main__":
    main()
