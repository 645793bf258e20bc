"""The faces of a server: which there are, and how each is started."""

import importlib
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config import tls
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.metrics import Metrics
from server.process import ports
from tpuserve.runtime import gc_control, tf_logging

# What is left to be done once no request is in flight.
LAST_SECONDS = 1

logger = logging.getLogger("server.app")


class Face(Protocol):
    """REST or gRPC: what answers from a data plane."""

    def start(self) -> None:
        """Begins to accept; OSError or RuntimeError where the port is taken."""

    def drain(self) -> None:
        """Says that nothing is served any more to who asks for it, while it still accepts."""

    def stop(self) -> None:
        """Stops accepting, and lets the requests in flight finish meanwhile."""

    def join(self) -> None:
        """Waits until the last request is answered, after `stop`."""


@dataclass(frozen=True)
class Shared:
    """What both faces work with.

    Attributes:
      tls: how connections are kept secret; None for not at all.
      metrics_path: where metrics are read over REST; None for nowhere.
      on_failure: called with the reason, from any thread, should a face end by itself.
    """

    settings: Settings
    dataplane: DataPlane
    metrics: Metrics
    admission: AdmissionController
    keys: ApiKeys | None
    tls: tls.TlsConfig | None
    metrics_path: str | None
    on_failure: Callable[[str], None]


def import_them(settings: Settings) -> None:
    """Imports what they need, so that nobody waits for it when there are models.

    The collector then need not look through the modules, and must through the models.
    """
    names = []
    logger.info("starting: TensorFlow is imported, which takes some seconds")
    if settings.port or settings.grpc_socket_path:
        # The protos bring TensorFlow, for which a server without gRPC waits later.
        tf_logging.import_tensorflow()
        names += ["server.frontends.grpc.server", "server.warmup.replayer"]
    if settings.rest_api_port:
        names += ["server.frontends.rest.app", "server.frontends.rest.transport.server"]
    with gc_control.gc_disabled():
        for name in names:
            importlib.import_module(name)


def start_rpc(shared: Shared, reserved: socket.socket | None) -> Face:
    """Starts gRPC, on the port that is kept for it or on a UNIX socket alone."""
    from server.frontends.grpc.server import RpcServer

    settings = shared.settings
    face = RpcServer(
        shared.dataplane,
        settings.host,
        settings.port,
        settings.shutdown_grace_seconds,
        settings,
        tls=shared.tls,
        keys=shared.keys,
        admission=shared.admission,
        metrics=shared.metrics,
    )
    # gRPC binds by itself, and may as long as nobody listens; then the place is kept by it.
    with reserved or nullcontext():
        _start(face, settings, settings.port, "--port")
    if reserved is not None:
        logger.info("gRPC on %s", ports.format_address(settings.host, settings.port))
    if settings.grpc_socket_path:
        logger.info("gRPC on unix:%s", settings.grpc_socket_path)
    return face


def start_rest(shared: Shared, reserved: socket.socket, models: Iterable[str]) -> Face:
    """Starts REST on the port that is kept for it, and logs where each model is found."""
    from server.frontends.rest.app import build_rest_app
    from server.frontends.rest.transport.server import RestServer

    settings = shared.settings
    app = build_rest_app(
        shared.dataplane,
        settings,
        metrics=shared.metrics,
        keys=shared.keys,
        admission=shared.admission,
        monitoring_path=shared.metrics_path,
    )
    grace_seconds = math.ceil(settings.shutdown_grace_seconds)
    face = RestServer(app, reserved, grace_seconds, shared.on_failure, tls=shared.tls)
    _start(face, settings, settings.rest_api_port, "--rest_api_port")
    scheme = "https" if shared.tls is not None else "http"
    address = f"{scheme}://{ports.format_address(settings.host, settings.rest_api_port)}"
    for name in models:
        logger.info("REST API on %s/v1/models/%s", address, quote(name, safe=""))
    return face


def _start(face: Face, settings: Settings, port: int, flag: str) -> None:
    try:
        face.start()
    except (OSError, RuntimeError) as error:
        path = settings.grpc_socket_path
        # gRPC tells which of its addresses it was in its text alone.
        if path and f"unix:{path}" in str(error):
            raise ports.unix_socket_error(path, "--grpc_socket_path") from error
        raise ports.port_in_use_error(settings.host, port, flag) from error


def join(face: Face, deadline: float) -> bool:
    """Whether a face has answered its last request in time."""
    # It may wait for a client that is slow to send what is not yet a request.
    joining = threading.Thread(target=face.join, name="join", daemon=True)
    joining.start()
    joining.join(max(0, deadline - time.monotonic()) + LAST_SECONDS)
    return not joining.is_alive()


def reserve(on_error: ExitStack, host: str, port: int, flag: str) -> socket.socket | None:
    """The socket that keeps a port until its face listens; None for port 0."""
    return on_error.enter_context(ports.bind_port(host, port, flag)) if port else None
