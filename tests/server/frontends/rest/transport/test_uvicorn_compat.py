"""The installed uvicorn is compatible. An incompatible uvicorn serves with its own protocol."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport import uvicorn_compat
from server.frontends.rest.transport.server import build_protocol_class
from server.frontends.rest.transport.timeout_protocol import ConnectionTimeouts
from server.frontends.rest.transport.uvicorn_compat import HttpToolsProtocol
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import ask

BODY, ANSWER = b'{"inputs": 2}', b'{\n    "outputs": 3.0\n}'
PREDICT = "/v1/models/half:predict"


def test_installed_uvicorn_is_as_expected() -> None:
    assert uvicorn_compat.is_compatible()


class OtherCallbacks(HttpToolsProtocol):
    """Like a release of uvicorn whose parser passes bodies in another way."""

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self.on_message_complete()


class OtherQueue(HttpToolsProtocol):
    """Like a release of uvicorn that stores the parts of a queued request in another order."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.pipeline:
            self.pipeline[0] = self.pipeline[0][::-1]


class OtherUpgrade(HttpToolsProtocol):
    """Like a release of uvicorn that does not report a request for a protocol upgrade."""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data.replace(b"Upgrade", b"Other"))


class OtherParameters(HttpToolsProtocol):
    """Like a release of uvicorn in which a method has another parameter."""

    def send_400_response(self, message: str) -> None:
        super().send_400_response(message)


class OtherState(HttpToolsProtocol):
    """Like a release of uvicorn without an attribute that our subclasses read."""

    def on_message_complete(self) -> None:
        super().on_message_complete()
        del self.timeout_keep_alive_task


class OtherFlowControl(uvicorn_compat.FlowControl):
    """Like a release of uvicorn whose flow control has no attribute for paused reading."""

    def pause_reading(self) -> None:
        self._transport.pause_reading()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("HttpToolsProtocol", None),
        ("HttpToolsProtocol", asyncio.Protocol),
        ("HttpToolsProtocol", OtherCallbacks),
        ("HttpToolsProtocol", OtherQueue),
        ("HttpToolsProtocol", OtherUpgrade),
        ("HttpToolsProtocol", OtherParameters),
        ("HttpToolsProtocol", OtherState),
        ("FlowControl", None),
        ("FlowControl", OtherFlowControl),
        ("STATUS_LINE", {200: "HTTP/1.1 200 OK"}),
    ],
)
def test_other_uvicorn_is_recognized(
    name: str, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_compat, name, other)
    assert not uvicorn_compat.is_compatible()


def test_other_uvicorn_serves_with_its_plain_protocol_and_one_log_line(
    dataplane: DataPlane,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(uvicorn_compat, "is_compatible", lambda: False)
    with caplog.at_level(logging.INFO, "server"):
        address = serve(build_rest_app(dataplane))
    (message,) = [message for message in caplog.messages if "uvicorn" in message]
    assert message.endswith(
        "differs from the tested releases. REST uses its plain HTTP protocol: without limits for "
        "slow clients, and without the fast path for small requests."
    )
    for _ in range(20):
        response, body = ask(address, "POST", PREDICT, BODY)
        assert (response.status, body) == (200, ANSWER)
    assert ask(address, "GET", "/healthz")[0].status == 200


def test_expected_uvicorn_serves_with_timeouts_and_the_fast_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timeouts = ConnectionTimeouts(idle_seconds=5)
    plain = build_protocol_class(timeouts, None)
    fast = build_protocol_class(timeouts, lambda url, headers: None)
    assert issubclass(plain, HttpToolsProtocol)
    assert issubclass(fast, HttpToolsProtocol)
    assert plain.timeouts is fast.timeouts is timeouts
    assert fast.find_fast_path(b"/", []) is None
    assert caplog.messages == []


def test_no_other_module_imports_uvicorns_protocols() -> None:
    transport = Path(uvicorn_compat.__file__).parent
    for file in transport.parent.rglob("*.py"):
        if file.name != "uvicorn_compat.py":
            assert "uvicorn.protocols" not in file.read_text()
