"""Chooses the uvicorn protocol class that handles the HTTP connections."""

import logging
from typing import Any

import uvicorn

from server.frontends.rest.transport import uvicorn_compat
from server.frontends.rest.transport.connection_limit import ConnectionLimit
from server.frontends.rest.transport.responses import SyncHandlerLookup
from server.frontends.rest.transport.timeouts import ConnectionTimeouts

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
