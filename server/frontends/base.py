"""The interface of a server's frontends, gRPC and REST, and functions to start and stop them."""

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

LAST_SECONDS = 1
"""The time that each step of the shutdown may take once no request is in flight."""

logger = logging.getLogger("server.app")


class Frontend(Protocol):
    """A server of one protocol that answers requests from a data plane."""

    def start(self) -> None:
        """Begin to accept connections.

        Raises:
          OSError, RuntimeError: the port is in use.
        """

    def drain(self) -> None:
        """Report to health checks that the server no longer serves. Connections stay open."""

    def stop(self) -> None:
        """Stop accepting connections. The requests in flight go on."""

    def join(self) -> None:
        """Wait until the last request is answered. Call `stop` first."""


@dataclass(frozen=True)
class FrontendContext:
    """The dependencies of the frontends.

    Attributes:
      settings: the settings of the server.
      dataplane: the data plane that answers requests.
      metrics: the registry in which requests are counted.
      admission: the controller that limits the requests in flight.
      keys: the accepted API keys; None to accept every client.
      tls: the certificate and the keys of TLS; None for plain connections.
      metrics_path: the path of the metrics over REST; None to serve no metrics.
      on_failure: a function that is called with the reason, from any thread, when a frontend ends
        by itself.
    """

    settings: Settings
    dataplane: DataPlane
    metrics: Metrics
    admission: AdmissionController
    keys: ApiKeys | None
    tls: tls.TlsConfig | None
    metrics_path: str | None
    on_failure: Callable[[str], None]


def preload_modules(settings: Settings) -> None:
    """Import the modules of the enabled frontends before models are loaded.

    No request then waits for an import. With garbage collection disabled during the imports, the
    collector never visits the imported objects.
    """
    names = []
    logger.info("starting: importing TensorFlow, which takes a few seconds")
    if settings.port or settings.grpc_socket_path:
        # The gRPC services import TensorFlow for its protos. A server without gRPC imports
        # TensorFlow with the first model.
        tf_logging.import_tensorflow()
        names += ["server.frontends.grpc.server", "server.warmup.replayer"]
    if settings.rest_api_port:
        names += ["server.frontends.rest.app", "server.frontends.rest.transport.server"]
    with gc_control.gc_disabled():
        for name in names:
            importlib.import_module(name)


def start_grpc(context: FrontendContext, reserved: socket.socket | None) -> Frontend:
    """Start the gRPC frontend.

    Args:
      context: the dependencies of the frontend.
      reserved: the socket that holds the port for the frontend; None to listen on a UNIX socket
        alone.

    Raises:
      PortInUse, InvalidSetting: gRPC cannot listen on the port or on the UNIX socket.
    """
    from server.frontends.grpc.server import GrpcServer

    settings = context.settings
    frontend = GrpcServer(
        context.dataplane,
        settings.host,
        settings.port,
        settings.shutdown_grace_seconds,
        settings,
        tls=context.tls,
        keys=context.keys,
        admission=context.admission,
        metrics=context.metrics,
    )
    # gRPC binds the port itself, which is possible as long as no socket listens on the port. The
    # reserving socket is closed once gRPC has bound the port.
    with reserved or nullcontext():
        _start(frontend, settings, settings.port, "--port")
    if reserved is not None:
        logger.info("gRPC on %s", ports.format_address(settings.host, settings.port))
    if settings.grpc_socket_path:
        logger.info("gRPC on unix:%s", settings.grpc_socket_path)
    return frontend


def start_rest(
    context: FrontendContext, reserved: socket.socket, models: Iterable[str]
) -> Frontend:
    """Start the REST frontend, and log the URL of each model.

    Args:
      context: the dependencies of the frontend.
      reserved: the socket that is bound to the port and that the frontend listens on.
      models: the names of the models.

    Raises:
      PortInUse: the frontend cannot listen on the port.
    """
    from server.frontends.rest.app import build_rest_app
    from server.frontends.rest.transport.server import RestServer

    settings = context.settings
    app = build_rest_app(
        context.dataplane,
        settings,
        metrics=context.metrics,
        keys=context.keys,
        admission=context.admission,
        monitoring_path=context.metrics_path,
    )
    grace_seconds = math.ceil(settings.shutdown_grace_seconds)
    frontend = RestServer(app, reserved, grace_seconds, context.on_failure, tls=context.tls)
    _start(frontend, settings, settings.rest_api_port, "--rest_api_port")
    scheme = "https" if context.tls is not None else "http"
    address = f"{scheme}://{ports.format_address(settings.host, settings.rest_api_port)}"
    for name in models:
        logger.info("REST API on %s/v1/models/%s", address, quote(name, safe=""))
    return frontend


def _start(frontend: Frontend, settings: Settings, port: int, flag: str) -> None:
    try:
        frontend.start()
    except (OSError, RuntimeError) as error:
        path = settings.grpc_socket_path
        # The address that gRPC could not bind is known only from the text of gRPC's error.
        if path and f"unix:{path}" in str(error):
            raise ports.unix_socket_error(path, "--grpc_socket_path") from error
        raise ports.port_in_use_error(settings.host, port, flag) from error


def join_with_deadline(frontend: Frontend, deadline: float) -> bool:
    """Wait for a frontend's last request, at most until `LAST_SECONDS` after a deadline.

    Args:
      frontend: a frontend that was stopped.
      deadline: in seconds, of `time.monotonic`.

    Returns:
      Whether the frontend has answered its last request.
    """
    # Join in a thread, because a frontend may wait for a slow client whose request is still
    # incomplete.
    joining = threading.Thread(target=frontend.join, name="join", daemon=True)
    joining.start()
    joining.join(max(0, deadline - time.monotonic()) + LAST_SECONDS)
    return not joining.is_alive()


def reserve_port(on_error: ExitStack, host: str, port: int, flag: str) -> socket.socket | None:
    """Bind a socket that holds a port until a frontend listens on the port.

    Args:
      on_error: the stack that closes the socket when the start of the server fails.
      host: the address to bind.
      port: the port; 0 for a frontend that is disabled.
      flag: the command-line flag that sets the port, for the text of an error.

    Returns:
      The socket; None for port 0.
    """
    return on_error.enter_context(ports.bind_port(host, port, flag)) if port else None
