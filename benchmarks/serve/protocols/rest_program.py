"""Runs one server of the REST benchmark: prints its port, and serves until its input ends.

The argument is one of `benchmarks.serve.protocols.rest.SIDES`.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.serve.models import save_half_plus_two
from server.admission import latency_tracker
from server.frontends.rest.transport.server import RestServer
from server.process import ports

_HOST = "127.0.0.1"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request with the body of the request, as an ASGI application."""
    await send_json(send, await read_body(receive))


async def read_body(receive: Any) -> bytes:
    """Read the whole body of a request."""
    chunks = []
    while True:
        message = await receive()
        chunks.append(message["body"])
        if not message["more_body"]:
            return b"".join(chunks)


async def send_json(send: Any, body: bytes) -> None:
    """Send a response with a body."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def build_app(directory: Path, is_batched: bool) -> Any:
    """Build the REST application of half_plus_two, with admission control and metrics.

    Args:
      directory: The version directory to which the model is exported.
      is_batched: Whether the server batches requests.
    """
    from server.admission.admission import AdmissionController
    from server.batching.factory import BatchingRunnerFactory
    from server.config.batching_parameters import BatchingParameters
    from server.config.settings import Settings
    from server.dataplane import DataPlane
    from server.frontends.rest.app import build_rest_app
    from server.metrics import Metrics
    from server.models.manager import Manager
    from server.scheduling.request_queues import RequestQueues
    from server.scheduling.run_limits import RunLimits
    from tpuserve.runtime import loader

    save_half_plus_two(directory)
    options: dict[str, Any] = {}
    if is_batched:
        parameters = BatchingParameters(num_batch_threads=2, batch_timeout_micros=0)
        options["make_runner"] = BatchingRunnerFactory(parameters).wrap
    manager = Manager(lambda path: loader.load(path), **options)
    manager.set_aspired_versions("half", {1: directory})
    manager.wait(lambda: manager.matches_aspired("half"))
    manager.wait(lambda: manager.is_available("half"))
    metrics = Metrics()
    settings = Settings(directory.parent, enable_batching=is_batched)
    queues = RequestQueues(lambda model: RunLimits(max_concurrent_runs=128, only_waits=is_batched))
    plane = DataPlane(manager, metrics=metrics)
    admission = AdmissionController(1000)
    return build_rest_app(plane, settings, metrics=metrics, admission=admission, queues=queues)


def main() -> None:
    """Serve until standard input ends."""
    side = sys.argv[1]
    if "in threads" in side:
        # No request is quick, so none runs in the event loop.
        latency_tracker._QUICK_SECONDS = 0.0
    with (
        tempfile.TemporaryDirectory() as temporary,
        ports.bind_port(_HOST, 0, "--rest_api_port") as listener,
    ):
        app = echo if side == "echo" else build_app(Path(temporary) / "1", "batched" in side)
        server = RestServer(
            app,
            listener,
            1,
            partial(print, file=sys.stderr),
            use_fast_path="without fast path" not in side,
        )
        server.start()
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()
        server.stop()
        server.join()


if __name__ == "__main__":
    main()
