"""Sends calls to the engine process from an asyncio event loop, and receives the answers there."""

import asyncio
import contextlib
import logging
from typing import Any

from server.remote.channel import Channel
from server.remote.channel_loop import ChannelReader, OnClosed, OnMessage
from server.remote.client import EngineClient

logger = logging.getLogger(__name__)


class EventLoopClient(EngineClient):
    """An `EngineClient` that works in the asyncio event loop of the REST frontend.

    The event loop sends the calls and also receives the answers, because passing an answer from one
    thread to another takes longer than a run of a small model.
    """

    def __init__(self) -> None:
        """Create a client without a connection."""
        super().__init__(self._make_reader)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to receive messages in an event loop; must be called in this event loop."""
        self._event_loop_reader.attach(loop)

    def _make_reader(self, on_message: OnMessage, on_closed: OnClosed) -> ChannelReader:
        self._event_loop_reader = _EventLoopReader(on_message, on_closed)
        return self._event_loop_reader


class _EventLoopReader:
    """A `ChannelReader` that receives messages in an event loop, from the channel added last."""

    def __init__(self, on_message: OnMessage, on_closed: OnClosed) -> None:
        """Create a reader without an event loop.

        Args:
          on_message: called in the event loop with the channel and each message that arrives.
          on_closed: called in the event loop with a channel whose other end has closed the
            connection.
        """
        self._on_message = on_message
        self._on_closed = on_closed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channel: Channel | None = None
        # The channel whose queued messages are sent at the end of this iteration of the event loop.
        self._unflushed: Channel | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to receive messages in an event loop; must be called in this event loop."""
        if self._loop is None:
            self._loop = loop
            if self._channel is not None:
                self._register(self._channel)

    def add(self, channel: Channel) -> None:
        """Receive the messages of this channel instead of those of an earlier channel."""
        self._channel = channel
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._register, channel)

    def send(self, channel: Channel, kind: int, number: int, *values: Any) -> None:
        """Send a message, together with the other messages of this iteration of the event loop."""
        channel.send_later(kind, number, *values)
        if self._unflushed is not channel:
            self._unflushed = channel
            assert self._loop is not None
            self._loop.call_soon(self._flush, channel)

    def close(self) -> None:
        """Do nothing: the frontend ends the event loop, and with it the receiving of messages."""

    def _register(self, channel: Channel) -> None:
        assert self._loop is not None
        loop = self._loop

        def watch_writes() -> None:
            loop.call_soon_threadsafe(self._watch_writes, channel)

        channel.on_blocked(watch_writes)
        loop.add_reader(channel.fileno(), self._read, channel)

    def _flush(self, channel: Channel) -> None:
        self._unflushed = None
        try:
            if not channel.flush():
                self._watch_writes(channel)
        except OSError:
            self._drop(channel)

    def _read(self, channel: Channel) -> None:
        try:
            for message in channel.receive():
                self._on_message(channel, message)
        except OSError:
            self._drop(channel)
        except Exception:
            logger.exception("a message between the processes of the server cannot be handled")
            self._drop(channel)

    def _watch_writes(self, channel: Channel) -> None:
        assert self._loop is not None
        if channel.fileno() >= 0:
            self._loop.add_writer(channel.fileno(), self._write, channel)

    def _write(self, channel: Channel) -> None:
        assert self._loop is not None
        with contextlib.suppress(OSError):
            if not channel.flush():
                return
        self._loop.remove_writer(channel.fileno())

    def _drop(self, channel: Channel) -> None:
        if channel.fileno() < 0:
            return
        assert self._loop is not None
        self._loop.remove_reader(channel.fileno())
        self._loop.remove_writer(channel.fileno())
        self._on_closed(channel)
        channel.close()
