"""Chooses the uvicorn protocol class that handles the HTTP connections."""

import logging
from typing import Any

import uvicorn

from server.frontends.rest.transport import uvicorn_compat
from server.frontends.rest.transport.responses import SyncHandlerLookup
from server.frontends.rest.transport.timeouts import ConnectionTimeouts

logger = logging.getLogger(__name__)


def build_protocol_class(
    timeouts: ConnectionTimeouts, find_fast_path: SyncHandlerLookup | None
) -> Any:
    """Return the protocol class to pass as the option `http` of uvicorn's Config.

    uvicorn creates an instance for each connection. If `uvicorn_compat` does not support the
    installed uvicorn, the result is uvicorn's own class, without timeouts and fast path, and the
    function logs a warning.

    Args:
      timeouts: The limits for slow clients.
      find_fast_path: Finds the function that answers a request without asyncio. None lets
        uvicorn handle all requests.
    """
    if not uvicorn_compat.is_compatible():
        logger.warning(
            "uvicorn %s differs from the tested releases. REST uses its plain HTTP protocol: "
            "without limits for slow clients, and without the fast path for small requests.",
            uvicorn.__version__,
        )
        return "auto"
    # Import these modules only now: they subclass private classes of uvicorn, whose presence
    # `uvicorn_compat` has just checked.
    if find_fast_path is None:
        from server.frontends.rest.transport.timeout_protocol import TimeoutProtocol

        return type("BoundTimeoutProtocol", (TimeoutProtocol,), {"timeouts": timeouts})
    from server.frontends.rest.transport.fast_path_protocol import FastPathProtocol

    members = {"timeouts": timeouts, "find_fast_path": staticmethod(find_fast_path)}
    return type("BoundFastPathProtocol", (FastPathProtocol,), members)
