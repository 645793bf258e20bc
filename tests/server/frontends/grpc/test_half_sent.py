"""A message that never arrives completely takes bounded memory and time and blocks no call."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from server.admission.memory_budget import MemoryBudget
from server.dataplane import DataPlane
from server.frontends.grpc.executor import factory
from server.frontends.grpc.executor.stalled_calls import StalledCallLimits
from tests.server.frontends.grpc import clients

pytestmark = pytest.mark.slow

MB = 1 << 20
PREDICT = b"/tensorflow.serving.PredictionService/Predict"
SECONDS = 60
# A call is stalled after this time, which is shorter than the server's, to save the wait.
STALLED_SECONDS = 2.0
# The frame types and settings of HTTP/2. Source: RFC 9113, section 6.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4
FRAME_BYTES, WINDOW_BYTES = 16_384, 65_535


class HalfSender:
    """A client with its own connection that announces a message of 100 MB and sends only a part."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._lock = threading.Condition()
        self._connection_window = self._stream_window = WINDOW_BYTES
        self._initial_window = WINDOW_BYTES
        self.is_ended = False
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self._send_frame(SETTINGS, 0, 0)
        headers = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", PREDICT),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        ]
        # Encode the headers as literal fields with new names. Source: RFC 7541, section 6.2.2.
        fields = (
            b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
            for name, value in headers
        )
        self._send_frame(HEADERS, END_HEADERS, 1, b"".join(fields))
        threading.Thread(target=self._read, daemon=True).start()
        self.send(struct.pack(">BI", 0, 100 * MB))

    def send(self, content: bytes) -> None:
        """Send a part of the message as HTTP/2 flow control permits, or until the call ends."""
        while content and not self.is_ended:
            with self._lock:
                assert self._lock.wait_for(lambda: self._window() > 0 or self.is_ended, SECONDS)
                count = min(len(content), self._window(), FRAME_BYTES)
                self._connection_window -= count
                self._stream_window -= count
            if not self.is_ended:
                self._send_frame(DATA, 0, 1, content[:count])
                content = content[count:]

    def close(self) -> None:
        self._socket.close()

    def _window(self) -> int:
        return min(self._connection_window, self._stream_window)

    def _send_frame(self, kind: int, flags: int, stream: int, content: bytes = b"") -> None:
        header = struct.pack(">IBBI", len(content), kind, flags, stream)[1:]
        try:
            self._socket.sendall(header + content)
        except OSError:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self.is_ended = True
            self._lock.notify_all()

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while len(header := stream.read(9)) == 9:
                    length, kind, flags, number = struct.unpack(">IBBI", b"\0" + header)
                    self._handle(kind, flags, number, stream.read(length))
        except (OSError, ValueError):
            pass
        self._end()

    def _handle(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if kind == WINDOW_UPDATE:
            (size,) = struct.unpack(">I", content)
            with self._lock:
                if number:
                    self._stream_window += size
                else:
                    self._connection_window += size
                self._lock.notify_all()
        elif kind == SETTINGS and not flags & ACK:
            for name, value in struct.iter_unpack(">HI", content):
                if name == INITIAL_WINDOW:
                    with self._lock:
                        self._stream_window += value - self._initial_window
                        self._initial_window = value
                        self._lock.notify_all()
            self._send_frame(SETTINGS, ACK, 0)
        elif kind == PING and not flags & ACK:
            self._send_frame(PING, ACK, 0, content)
        elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
            self._end()


@pytest.fixture(params=[True, False], ids=["direct polling", "public API"])
def address(
    dataplane: DataPlane, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Yield the address of a server whose incomplete messages may take 8 MB together."""
    limits = partial(StalledCallLimits, STALLED_SECONDS)
    monkeypatch.setattr(factory, "StalledCallLimits", limits)
    with clients.serving(
        dataplane, memory_budget=MemoryBudget(16 * MB), allow_direct_polling=request.param
    ) as server:
        yield server.address


def test_half_sent_messages_end_and_other_clients_are_answered(address: str) -> None:
    with ExitStack() as stack, clients.connect(address) as client:
        senders = [HalfSender(address) for _ in range(4)]
        for sender in senders:
            stack.callback(sender.close)
            sender.send(bytes(4 * MB))
        deadline = time.monotonic() + SECONDS

        def wait_until_ended(count: int, progress: int) -> None:
            while sum(sender.is_ended for sender in senders) < count:
                assert time.monotonic() < deadline
                assert list(client.predict(x=[1.0]).outputs["y"].float_val) == [2.5]
                for sender in senders:
                    sender.send(bytes(progress))
                time.sleep(0.05)

        # The four senders have sent 16 MB, so two are cancelled, although each still sends 40 kB/s,
        # which is too fast for a stalled call.
        wait_until_ended(2, progress=2000)
        # The other two keep 8 MB, which is allowed as long as they send. Now they stop, and are
        # cancelled as stalled after STALLED_SECONDS.
        wait_until_ended(4, progress=0)
        assert list(client.predict(x=[1.0]).outputs["y"].float_val) == [2.5]
