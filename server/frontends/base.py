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
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.admission.memory_budget import MemoryBudget
from server.config import tls
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.metrics import Metrics
from server.process import ports
from server.scheduling.request_queues import RequestQueues
from tpuserve.runtime import gc_control, serving_import, tf_logging
from tpuserve.saved_model import op_imports

if TYPE_CHECKING:
    from server.telemetry.tracing import Tracing

LAST_SECONDS = 1
"""The time that each step of the shutdown may take once no request is in flight."""

logger = logging.getLogger("server.app")


class Frontend(Protocol):
    """A server of one protocol, gRPC or REST.

    A frontend passes each request to the data plane, which is the part of the server that finds and
    runs the requested model.
    """

    def start(self) -> None:
        """Begin to accept connections.

        Raises:
          OSError, RuntimeError: the port is in use, or the frontend cannot listen on an address.
        """

    def report_health(self, is_serving: bool) -> None:
        """Set whether health checks report that the server answers requests."""

    def drain(self) -> None:
        """Report in health checks that the server is about to stop. Connections stay open.

        Load balancers then send new requests to other servers.
        """

    def stop(self) -> None:
        """Stop accepting connections. Requests that have arrived are still answered."""

    def join(self) -> None:
        """Wait until all requests are answered. The caller must have called `stop`."""


@dataclass(frozen=True)
class FrontendContext:
    """The objects that the gRPC and the REST frontend of a server share.

    Attributes:
      keys: the accepted API keys; None to accept requests without a key.
      tls: the certificate and the keys of TLS; None for plain connections.
      metrics_path: a second URL path at which the REST frontend serves the metrics, besides
        /metrics; None for none.
      tracing: records the requests as spans; None for no traces.
      on_failure: a function that is called with the reason, from any thread, when a frontend ends
        although `stop` was not called.
    """

    settings: Settings
    dataplane: DataPlane
    metrics: Metrics
    admission: AdmissionController
    memory_budget: MemoryBudget
    queues: RequestQueues
    keys: ApiKeys | None
    tls: tls.TlsConfig | None
    metrics_path: str | None
    tracing: "Tracing | None"
    on_failure: Callable[[str], None]


def import_rest_modules() -> None:
    """Import the modules of the REST frontend.

    These modules do not import TensorFlow, so that the frontend can answer health checks before
    and during the slow import of TensorFlow.
    """
    _import_modules("server.frontends.rest.app", "server.frontends.rest.transport.server")


def import_tensorflow_and_grpc_modules(settings: Settings) -> None:
    """Import TensorFlow and the modules of the gRPC frontend, if gRPC is enabled.

    Call this function before models are loaded: otherwise the first requests would wait for the
    imports. The ops of --import_ops are registered, too.

    Raises:
      InvalidSetting: a package or a library of --import_ops cannot be loaded.
    """
    if op_imports.need_python(settings.import_ops):
        # The packages may import what a server leaves out of TensorFlow, such as Keras.
        tf_logging.import_tensorflow()
    elif settings.import_ops:
        serving_import.import_tensorflow_for_serving()
    op_imports.import_ops(settings.import_ops)
    if settings.port or settings.grpc_socket_path:
        serving_import.import_tensorflow_for_serving()
        _import_modules("server.frontends.grpc.server", "server.warmup.replayer")


def _import_modules(*names: str) -> None:
    # Disable garbage collection during the imports, so that the collector spends no time on the
    # imported objects, which live as long as the process.
    with gc_control.gc_disabled():
        for name in names:
            importlib.import_module(name)


def start_grpc(context: FrontendContext, reserved: socket.socket | None) -> Frontend:
    """Start the gRPC frontend.

    Args:
      reserved: the bound socket with which `reserve_port` keeps other processes from taking the
        port.
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
        memory_budget=context.memory_budget,
        metrics=context.metrics,
        queues=context.queues,
        tracing=context.tracing,
    )
    # Close the reserving socket only after gRPC has bound the port, so that no other process takes
    # the port in between. gRPC can bind the port, because the reserving socket does not listen.
    with reserved or nullcontext():
        _start(frontend, settings, settings.port, "--port")
    return frontend


def start_rest(context: FrontendContext, reserved: socket.socket) -> Frontend:
    """Start the REST frontend."""
    from server.frontends.rest.app import build_rest_app
    from server.frontends.rest.transport.connection_limit import ConnectionLimit
    from server.frontends.rest.transport.server import RestServer

    settings = context.settings
    app = build_rest_app(
        context.dataplane,
        settings,
        metrics=context.metrics,
        keys=context.keys,
        admission=context.admission,
        memory_budget=context.memory_budget,
        queues=context.queues,
        monitoring_path=context.metrics_path,
        tracing=context.tracing,
    )
    grace_seconds = math.ceil(settings.shutdown_grace_seconds)
    peer_share = -(-settings.max_connections // 4) if settings.peer_limit else 0
    frontend = RestServer(
        app,
        reserved,
        grace_seconds,
        context.on_failure,
        tls=context.tls,
        connection_limit=ConnectionLimit(settings.max_connections, peer_share),
    )
    _start(frontend, settings, settings.rest_api_port, "--rest_api_port")
    return frontend


def log_addresses(settings: Settings, models: Iterable[str]) -> None:
    """Log the addresses on which the frontends listen, and the REST URL of each model."""
    # Log the lines that tensorflow_model_server logs, because tools wait for these lines.
    if settings.port:
        address = ports.format_address(settings.host, settings.port)
        logger.info("Running gRPC ModelServer at %s ...", address)
    if settings.grpc_socket_path:
        logger.info("Running gRPC ModelServer at UNIX socket %s ...", settings.grpc_socket_path)
    if not settings.rest_api_port:
        return
    host = "localhost" if settings.host in ports.ALL_ADDRESSES else settings.host
    logger.info(
        "Exporting HTTP/REST API at:%s ...", ports.format_address(host, settings.rest_api_port)
    )
    scheme = "https" if settings.ssl_config_file else "http"
    address = f"{scheme}://{ports.format_address(settings.host, settings.rest_api_port)}"
    for name in models:
        logger.info("REST API on %s/v1/models/%s", address, quote(name, safe=""))


def _start(frontend: Frontend, settings: Settings, port: int, flag: str) -> None:
    try:
        frontend.start()
    except (OSError, RuntimeError) as error:
        path = settings.grpc_socket_path
        # Search the text of the error for the path of the UNIX socket, to find out whether gRPC
        # failed to bind the socket or the port: only the text names the address.
        if path and f"unix:{path}" in str(error):
            raise ports.unix_socket_error(path, "--grpc_socket_path") from error
        raise ports.port_in_use_error(settings.host, port, flag) from error


def join_with_deadline(frontend: Frontend, deadline: float) -> bool:
    """Wait until a frontend has answered its last request, up to a deadline.

    The wait ends at the latest `LAST_SECONDS` after the deadline, so that a frontend whose last
    request ended at the deadline has time to close.

    Args:
      deadline: the time on the clock `time.monotonic`, in seconds.
    """
    # Call `join` in a daemon thread, and wait for that thread with a timeout: `join` itself has no
    # timeout, and can wait long for a client that is slow to send its request.
    joining = threading.Thread(target=frontend.join, name="join", daemon=True)
    joining.start()
    joining.join(max(0, deadline - time.monotonic()) + LAST_SECONDS)
    return not joining.is_alive()


def reserve_port(
    on_error: ExitStack, host: str, port: int, flag: str, *, is_shared: bool = False
) -> socket.socket | None:
    """Bind a socket to a port, so that no other process takes the port before a frontend listens.

    Args:
      on_error: an ExitStack that the caller closes if the server fails to start. The socket is then
        closed too.
      flag: the command-line flag that sets the port, such as "--port", for the text of an error.
      is_shared: whether other processes of this server listen on the same port, so that the kernel
        distributes connections among them.

    Returns:
      None for port 0.
    """
    if not port:
        return None
    return on_error.enter_context(ports.bind_port(host, port, flag, is_shared=is_shared))
