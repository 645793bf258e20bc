"""The REST face as something to start and stop: uvicorn in a thread of its own."""

import logging
import math
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from server.config.tls import TlsConfig
from server.frontends.rest.transport import tls as tls_context
from server.frontends.rest.transport.fast_path_protocol import protocol
from server.frontends.rest.transport.timeouts import ConnectionTimeouts

logger = logging.getLogger(__name__)


class RestServer:
    """Serves an application on a bound socket."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        grace_seconds: float,
        on_failure: Callable[[str], None],
        tls: TlsConfig | None = None,
        timeouts: ConnectionTimeouts | None = None,
    ) -> None:
        """Takes what to serve and where.

        Args:
          listener: bound, not yet listening; closed by `stop`.
          grace_seconds: how long requests in flight may take once `stop` is called.
          on_failure: called with the reason should serving end before `stop`.
          tls: the keys to serve with; None for plain HTTP.
          patience: how long clients may take; None for the usual.

        Raises:
          InvalidConfig: keys that cannot be used.
        """
        config = uvicorn.Config(
            app,
            http=protocol(timeouts or ConnectionTimeouts(), getattr(app, "find", None)),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            # What a client says of its own address counts for nothing here.
            proxy_headers=False,
            timeout_graceful_shutdown=math.ceil(grace_seconds),
        )
        if tls is not None:
            config.load()
            config.ssl = tls_context.context(tls)
        self._app = app
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._on_failure = on_failure
        # uvicorn takes hold of signals in the main thread only, and those are `server.app`'s.
        self._thread = threading.Thread(target=self._serve, name="rest")

    def start(self) -> None:
        """Begins to accept; from here on a connection is answered."""
        self._listener.listen(self._server.config.backlog)
        self._thread.start()

    def drain(self) -> None:
        """Does nothing: readiness and refusals are those of the limits, which all faces share."""

    def stop(self) -> None:
        """Stops accepting, and lets the requests in flight finish meanwhile."""
        self._server.should_exit = True

    def join(self) -> None:
        """Waits until the last request is answered, after `stop`."""
        self._thread.join()
        close = getattr(self._app, "close", None)
        if close is not None:
            close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except Exception:
            logger.exception("REST has failed")
        finally:
            if not self._server.should_exit:
                self._on_failure("REST has ended by itself")
