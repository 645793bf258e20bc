"""Runs uvicorn, the HTTP server, in a separate thread."""

import logging
import math
import os
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from server.config.tls import TlsConfig
from server.frontends.rest.transport import uvicorn_compat
from server.frontends.rest.transport.connection_limit import ConnectionLimit
from server.frontends.rest.transport.responses import SyncHandlerLookup
from server.frontends.rest.transport.timeout_protocol import ConnectionTimeouts
from tpuserve.errors import InvalidConfig


def create_ssl_context(tls: TlsConfig) -> ssl.SSLContext:
    """Create the TLS context of a listening socket from the key and certificates.

    Raises:
      InvalidConfig: The key or a certificate cannot be parsed, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Write temporary files, because the ssl module loads a key and its certificate only from
        # files.
        with _write_file(tls.server_cert) as certificate, _write_file(tls.server_key) as key:
            context.load_cert_chain(certificate, key, password=_refuse_password)
        if tls.custom_ca:
            context.load_verify_locations(cadata=tls.custom_ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(
            f"--ssl_config_file: the key and certificates cannot be used: {error}. Give the PEM "
            f"text of a certificate and of the key that belongs to it."
        ) from error
    if tls.client_verify:
        context.verify_mode = ssl.CERT_REQUIRED
        if not tls.custom_ca:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _refuse_password() -> str:
    # Raise an error if the key is encrypted. Without this callback, OpenSSL would prompt for the
    # password on the terminal.
    raise ValueError("the key is encrypted")


@contextmanager
def _write_file(content: bytes) -> Iterator[str]:
    """Write a file that only the user of this process can read, and yield the path of the file."""
    if sys.platform.startswith("linux"):
        handle = os.memfd_create("tls")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{handle}"
        return
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)


logger = logging.getLogger(__name__)


def build_protocol_class(
    timeouts: ConnectionTimeouts,
    find_fast_path: SyncHandlerLookup | None,
    connection_limit: ConnectionLimit | None = None,
) -> Any:
    """Return the protocol class to pass as the option `http` of uvicorn's Config.

    uvicorn creates an instance of the class for each connection.

    Args:
      find_fast_path: A function that returns the handler of a quick request, or None if uvicorn
        must handle the request. If `find_fast_path` itself is None, uvicorn handles all requests.
      connection_limit: Bounds the number of connections. None means no bound.
    """
    if not uvicorn_compat.is_compatible():
        logger.warning(
            "uvicorn %s differs from the tested releases. REST uses its plain HTTP protocol: "
            "without limits for slow clients, and without the fast path for small requests.",
            uvicorn.__version__,
        )
        return "auto"
    # Import the protocol modules only if uvicorn is compatible: they subclass classes of uvicorn
    # whose private parts may differ between releases.
    members: dict[str, Any] = {
        "timeouts": timeouts,
        "connection_limit": connection_limit or ConnectionLimit(),
    }
    if find_fast_path is None:
        from server.frontends.rest.transport.timeout_protocol import TimeoutProtocol

        return type("BoundTimeoutProtocol", (TimeoutProtocol,), members)
    from server.frontends.rest.transport.fast_path_protocol import FastPathProtocol

    members["find_fast_path"] = staticmethod(find_fast_path)
    return type("BoundFastPathProtocol", (FastPathProtocol,), members)


class _UvicornServer(uvicorn.Server):
    """A uvicorn server that can be stopped even during its startup."""

    is_stop_requested = False

    async def on_tick(self, counter: int) -> bool:
        """Return whether uvicorn's main loop must end. uvicorn calls this method every 0.1 s."""
        return await super().on_tick(counter) or self.is_stop_requested


class RestServer:
    """Serves an ASGI application on a bound socket.

    Args:
      app: The application. If it has a method `find_fast_path`, this method returns functions
        that answer small and quick requests without an asyncio task.
      listener: A bound socket that does not listen yet. The server closes it after `stop`.
      grace_seconds: How many seconds the requests in flight may take after `stop`.
      on_failure: Called with the reason if the server ends before `stop`.
      tls: The key and certificates. None means plain HTTP.
      timeouts: The time limits for slow clients. None means the defaults.
      use_fast_path: Whether small and quick requests may bypass uvicorn. Benchmarks pass False.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        grace_seconds: float,
        on_failure: Callable[[str], None],
        tls: TlsConfig | None = None,
        timeouts: ConnectionTimeouts | None = None,
        use_fast_path: bool = True,
        connection_limit: ConnectionLimit | None = None,
    ) -> None:
        find_fast_path = getattr(app, "find_fast_path", None) if use_fast_path else None
        config = uvicorn.Config(
            app,
            http=build_protocol_class(
                timeouts or ConnectionTimeouts(), find_fast_path, connection_limit
            ),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            # Ignore headers such as X-Forwarded-For: clients must not be able to choose the address
            # in the access log.
            proxy_headers=False,
            timeout_graceful_shutdown=math.ceil(grace_seconds),
        )
        if tls is not None:
            config.load()
            config.ssl = create_ssl_context(tls)
        self._app = app
        self._server = _UvicornServer(config)
        self._listener = listener
        self._on_failure = on_failure
        # Run uvicorn outside the main thread. In the main thread, it would replace the signal
        # handlers that stop the whole server.
        self._thread = threading.Thread(target=self._serve, name="rest")

    def start(self) -> None:
        """Start to accept connections."""
        self._listener.listen(self._server.config.backlog)
        self._thread.start()

    def report_health(self, is_serving: bool) -> None:
        """Do nothing, because readiness checks read the status from the admission controller."""

    def drain(self) -> None:
        """Do nothing, because the admission controller refuses new requests."""

    def stop(self) -> None:
        """Stop accepting connections. Requests in flight continue."""
        self._server.is_stop_requested = True

    def join(self) -> None:
        """After `stop`, wait until all requests are answered, and close the application."""
        self._thread.join()
        close = getattr(self._app, "close", None)
        if close is not None:
            close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except Exception:
            logger.exception("The REST server has failed")
        finally:
            if not self._server.is_stop_requested:
                self._on_failure("The REST server ended unexpectedly")
