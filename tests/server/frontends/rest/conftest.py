"""Serves REST on a real socket."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest
from starlette.types import ASGIApp

from server.frontends.rest.transport.server import RestServer
from server.frontends.rest.transport.timeout_protocol import ConnectionTimeouts
from server.process import ports
from tests.server.frontends.rest.wire import Address

Serve: TypeAlias = Callable[..., Address]


@pytest.fixture(scope="module")
def stopped_servers() -> Iterator[ExitStack]:
    """Wait for all stopped servers of a test module at once: uvicorn takes 0.2 s to stop."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(stopped_servers: ExitStack) -> Iterator[Serve]:
    """Return a function that serves an application and returns its address."""
    with ExitStack() as stack:

        def start(
            app: ASGIApp, timeouts: ConnectionTimeouts | None = None, **options: Any
        ) -> Address:
            listener = stopped_servers.enter_context(
                ports.bind_port("127.0.0.1", 0, "--rest_api_port")
            )
            server = RestServer(app, listener, 5, pytest.fail, timeouts=timeouts, **options)
            server.start()
            stopped_servers.callback(server.join)
            stack.callback(server.stop)
            host, port = listener.getsockname()
            return host, port

        yield start
