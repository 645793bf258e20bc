"""Checks that the installed uvicorn has the private parts that this package uses.

`TimeoutProtocol` and `FastPathProtocol` subclass uvicorn's HTTP protocol, and
`BackpressureFlowControl` subclasses its flow control. Releases of uvicorn that this package was not
tested with may differ.
"""

import inspect
import sys
from collections.abc import Coroutine, Iterable
from operator import attrgetter
from typing import Any

import uvicorn

# The classes and functions of uvicorn that this package uses. Their type is Any, because the
# installed uvicorn may lack some of them. `is_compatible` checks that it has all of them.
HttpToolsProtocol: Any
FlowControl: Any
ServerState: Any
STATUS_LINE: Any
httptools: Any
try:
    import httptools
    from uvicorn.protocols.http.flow_control import FlowControl
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
    from uvicorn.server import ServerState
except ImportError:
    httptools = HttpToolsProtocol = FlowControl = ServerState = STATUS_LINE = None

# The methods of HttpToolsProtocol that this package calls or overrides, each with the names of its
# parameters after self.
_PROTOCOL_METHODS: dict[str, tuple[str, ...]] = {
    "connection_made": ("transport",),
    "connection_lost": ("exc",),
    "data_received": ("data",),
    "on_message_begin": (),
    "on_headers_complete": (),
    "on_body": ("body",),
    "on_message_complete": (),
    "send_400_response": ("msg",),
    "shutdown": (),
    "_unsupported_upgrade_warning": (),
}
_FLOW_CONTROL_METHODS: dict[str, tuple[str, ...]] = {
    "__init__": ("transport",),
    "pause_reading": (),
    "resume_reading": (),
}
# The attributes of HttpToolsProtocol that this package reads. uvicorn sets some of them only when a
# request arrives.
_PROTOCOL_ATTRIBUTES = (
    "client",
    "expect_100_continue",
    "flow.read_paused",
    "flow.write_paused",
    "headers",
    "logger",
    "loop",
    "parser",
    "pipeline",
    "server_state.default_headers",
    "server_state.total_requests",
    "timeout_keep_alive",
    "timeout_keep_alive_task",
    "transport",
    "url",
    "cycle.disconnected",
    "cycle.keep_alive",
    "cycle.message_event.set",
    "cycle.more_body",
    "cycle.response_complete",
    "cycle.response_started",
)
_HEAD = b"POST /path?query HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
_UPGRADE = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


def is_compatible() -> bool:
    """Return whether the installed uvicorn has the private parts that this package uses."""
    try:
        return (
            _has_methods(HttpToolsProtocol, _PROTOCOL_METHODS)
            and _has_methods(FlowControl, _FLOW_CONTROL_METHODS)
            and STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
            and _receives_requests_as_expected()
            and _reports_upgrades_as_expected()
            and _pauses_reading_as_expected()
        )
    except Exception:
        # Any exception in a check means that the installed uvicorn differs from the tested
        # releases.
        return False


def _has_methods(owner: Any, methods: dict[str, tuple[str, ...]]) -> bool:
    return all(
        tuple(inspect.signature(getattr(owner, name)).parameters) == ("self", *parameters)
        for name, parameters in methods.items()
    )


def _has_attributes(owner: Any, names: Iterable[str]) -> bool:
    try:
        for name in names:
            attrgetter(name)(owner)
    except AttributeError:
        return False
    return True


def _receives_requests_as_expected() -> bool:
    """Return whether the installed uvicorn handles requests as `TimeoutProtocol` needs it."""
    calls: list[str] = []

    class CallbackRecorder(HttpToolsProtocol):  # type: ignore[misc]
        def on_message_begin(self) -> None:
            calls.append("begin")
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            calls.append("headers")
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            calls.append(f"body of {len(body)}")
            super().on_body(body)

        def on_message_complete(self) -> None:
            calls.append("complete")
            super().on_message_complete()

    protocol = _connect(CallbackRecorder)
    protocol.data_received(_HEAD)
    first = protocol.cycle
    is_body_awaited = first.more_body
    protocol.data_received(b"{}")
    if calls != ["begin", "headers", "body of 2", "complete"] or not is_body_awaited:
        return False
    if not _has_attributes(protocol, _PROTOCOL_ATTRIBUTES) or first.more_body:
        return False
    protocol.data_received(_HEAD)
    return bool(
        protocol.url == b"/path?query"
        and protocol.headers == [(b"host", b"x"), (b"content-length", b"2")]
        and protocol.cycle is not first
        and not first.response_complete
        and protocol.flow.read_paused
        # Check that uvicorn puts the latest request at index 0 of its queue, together with the
        # application that answers the request.
        and protocol.pipeline[0] == (protocol.cycle, protocol.app)
    )


def _reports_upgrades_as_expected() -> bool:
    offsets: list[Any] = []

    class UpgradeRecorder(HttpToolsProtocol):  # type: ignore[misc]
        def _unsupported_upgrade_warning(self) -> None:
            error = sys.exc_info()[1]
            assert isinstance(error, httptools.HttpParserUpgrade)
            offsets.append(error.args[0])

    _connect(UpgradeRecorder).data_received(_UPGRADE + b"further data")
    return offsets == [len(_UPGRADE)]


def _pauses_reading_as_expected() -> bool:
    transport = _Transport()
    flow = FlowControl(transport)
    flow.pause_reading()
    was_paused = flow.read_paused and not transport.is_reading
    flow.resume_reading()
    return bool(was_paused and not flow.read_paused and transport.is_reading)


async def _application(scope: Any, receive: Any, send: Any) -> None:
    """Take the place of an ASGI application in the checks, which never call it."""


class _Task:
    def add_done_callback(self, callback: Any) -> None:
        pass


class _Loop:
    """Takes the place of an asyncio event loop in the checks, and runs nothing."""

    def create_task(self, coroutine: Coroutine[Any, Any, None], **options: Any) -> _Task:
        coroutine.close()
        return _Task()


class _Transport:
    """Takes the place of an asyncio transport in the checks, and has no client address."""

    is_reading = True

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


def _connect(protocol_class: Any) -> Any:
    config = uvicorn.Config(
        _application, http=protocol_class, ws="none", lifespan="off", log_config=None
    )
    protocol = protocol_class(config, ServerState(), {}, _Loop())
    protocol.connection_made(_Transport())
    return protocol
