"""A thread that receives the messages of channels, and sends their queued messages."""

import contextlib
import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from server.remote.channel import Channel, Message

OnMessage: TypeAlias = Callable[[Channel, Message], None]
OnClosed: TypeAlias = Callable[[Channel], None]

logger = logging.getLogger(__name__)


class ChannelReader(Protocol):
    """Receives the messages of channels (connections to other processes), and sends messages."""

    def add(self, channel: Channel) -> None:
        """Begin to receive the messages of a channel, and to send its queued messages."""

    def send(self, channel: Channel, kind: int, number: int, *values: Any) -> None:
        """Send a message; the arguments and errors are those of `Channel.send`."""

    def close(self) -> None:
        """Stop receiving messages, and close the channels."""


class ChannelLoop:
    """A `ChannelReader` that receives the messages of all channels of a process in one thread."""

    def __init__(self, name: str, on_message: OnMessage, on_closed: OnClosed) -> None:
        """Create a loop without channels.

        Args:
          name: the name of the thread.
          on_message: called in the thread with the channel and each message that arrives.
          on_closed: called in the thread with a channel whose other end has closed the connection.
            The channel is closed afterwards.
        """
        self._on_message = on_message
        self._on_closed = on_closed
        self._selector = selectors.DefaultSelector()
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_reader.setblocking(False)
        self._wakeup_writer.setblocking(False)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ)
        self._work: deque[Callable[[], None]] = deque()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread that receives messages."""
        self._thread.start()

    def add(self, channel: Channel) -> None:
        """Begin to receive the messages of a channel, and to send its queued messages."""
        channel.on_blocked(lambda: self._call_soon(lambda: self._watch_writes(channel)))
        self._call_soon(lambda: self._register(channel))

    def send(self, channel: Channel, kind: int, number: int, *values: Any) -> None:
        """Send a message immediately, in the calling thread.

        The arguments and errors are those of `Channel.send`.
        """
        channel.send(kind, number, *values)

    def close(self) -> None:
        """End the thread, and close the channels."""
        self._is_closing = True
        self._call_soon(lambda: None)
        self._thread.join()

    def _call_soon(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        # Send a byte, which wakes up the thread of the loop. Ignore errors: if the socket's buffer
        # is full, the bytes in it wake the thread up, and if the socket is closed, the thread has
        # ended.
        with contextlib.suppress(OSError):
            self._wakeup_writer.send(b"\0")

    def _run(self) -> None:
        while not self._is_closing:
            for key, events in self._selector.select():
                if key.fileobj is self._wakeup_reader:
                    self._run_work()
                else:
                    self._serve(key.data, events)
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._drop(key.data)
        self._selector.close()
        self._wakeup_reader.close()
        self._wakeup_writer.close()

    def _run_work(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakeup_reader.recv(4096)
        while self._work:
            self._work.popleft()()

    def _serve(self, channel: Channel, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE and channel.flush():
                self._selector.modify(channel, selectors.EVENT_READ, channel)
            if events & selectors.EVENT_READ:
                for message in channel.receive():
                    self._on_message(channel, message)
                if not channel.flush():
                    self._watch_writes(channel)
        except OSError:
            self._drop(channel)
        except Exception:
            logger.exception("a message between the processes of the server cannot be handled")
            self._drop(channel)

    def _register(self, channel: Channel) -> None:
        self._selector.register(channel, selectors.EVENT_READ, channel)

    def _watch_writes(self, channel: Channel) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.modify(channel, selectors.EVENT_READ | selectors.EVENT_WRITE, channel)

    def _drop(self, channel: Channel) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(channel)
        self._on_closed(channel)
        channel.close()
