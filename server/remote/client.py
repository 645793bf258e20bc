"""Sends the calls of a frontend process to the engine process, and receives the answers."""

import contextlib
import itertools
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

from server.admission.cancellation import Cancellation
from server.process.thread_pool import ThreadPool
from server.remote import protocol
from server.remote.call import RemoteCall
from server.remote.channel import Channel, Message
from server.remote.channel_loop import ChannelReader, OnClosed, OnMessage
from tpuserve.errors import Unavailable

logger = logging.getLogger(__name__)

_NO_ENGINE = (
    "the models are not available: the process that runs them has ended, and is started again. "
    "Send the request again later."
)
# The number of threads in which calls are sent again, because their inputs were decoded with an
# outdated signature.
_RETRY_THREADS = 4
# The longest time, in seconds, to wait for the first message of an engine process, which says
# whether a model is available.
_STATE_SECONDS = 10.0


class EngineClient:
    """Sends calls to the engine process, and receives their answers. Thread-safe.

    While there is no engine process, because it has not started yet or has failed, all calls raise
    Unavailable.

    Attributes:
      on_state: a function that is called, in any thread, when the state of a model version has
        changed.
    """

    def __init__(
        self,
        make_reader: Callable[[OnMessage, OnClosed], ChannelReader],
        on_disconnected: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a client without a connection.

        Args:
          make_reader: creates the object that receives messages. Its arguments are two functions:
            the object calls the first with each message, the second with each closed channel.
          on_disconnected: called when the engine process has ended.
        """
        self._on_disconnected = on_disconnected
        self.on_state: Callable[[], object] = lambda: None
        self._reader = make_reader(self._receive, self._disconnect)
        self._retries = ThreadPool(_RETRY_THREADS, "engine-retry")
        self._channel: Channel | None = None
        self._is_available = False
        # This event is set when the engine process has reported whether a model is available, or
        # when the engine process has ended.
        self._has_state = threading.Event()
        self._numbers = itertools.count(1)
        self._calls: dict[int, RemoteCall] = {}

    @property
    def is_available(self) -> bool:
        """Whether the engine process runs, and at least one of its models is available."""
        return self._is_available and self._channel is not None

    @property
    def channel(self) -> Channel:
        """The connection to the engine process.

        Raises:
          Unavailable: there is no engine process now.
        """
        channel = self._channel
        if channel is None:
            raise Unavailable(_NO_ENGINE)
        return channel

    def connect(self, connection: socket.socket) -> None:
        """Use a connection to a new engine process instead of any earlier connection.

        Raises:
          OSError: the engine process has already ended.
        """
        channel = Channel(connection)
        self._is_available = False
        self._has_state.clear()
        self._channel = channel
        self._reader.add(channel)

    def wait_for_state(self) -> None:
        """Wait until the engine process has reported whether a model is available.

        Call this method after `connect`. The wait also ends when the engine process ends, and at
        the latest after `_STATE_SECONDS`.
        """
        self._has_state.wait(_STATE_SECONDS)

    def start(
        self,
        channel: Channel,
        kind: int,
        values: Message,
        cancellation: Cancellation | None = None,
        retry: Callable[[], Any] | None = None,
    ) -> RemoteCall:
        """Send a call to the engine process, without waiting for the answer.

        Args:
          channel: the connection over which to send the call. Its `pack` must have packed the
            arrays in `values`.
          kind: the kind of the message, a constant of `server.remote.protocol`.
          values: the contents of the message.
          cancellation: cancels the call; None if the call cannot be cancelled.
          retry: sends the call again with a new signature, and returns the answer; None if the call
            has no inputs.

        Returns:
          The call. Its answer is a message, or an exception: Unavailable if the engine process ends
          before it has answered, otherwise the exception that the call has raised in the engine
          process.

        Raises:
          Unavailable: the engine process has ended.
        """
        number = next(self._numbers)
        call = self._calls[number] = RemoteCall(channel, retry)
        try:
            self._reader.send(channel, kind, number, *values)
        except OSError:
            self._calls.pop(number, None)
            raise Unavailable(_NO_ENGINE) from None
        if channel is not self._channel and self._calls.pop(number, None) is not None:
            # The connection was lost while the call was sent. `_disconnect` ends all calls with
            # Unavailable, but may have run before this call was added. So raise the error here.
            raise Unavailable(_NO_ENGINE)
        if cancellation is not None:
            cancellation.add_callback(lambda: self._cancel(channel, number))
        return call

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._retries.shutdown(wait=False)

    def _cancel(self, channel: Channel, number: int) -> None:
        # Ignore the error if the engine process has ended, because its end also ends the call.
        with contextlib.suppress(OSError):
            if number in self._calls:
                channel.send(protocol.CANCEL, number)

    def _receive(self, channel: Channel, message: Message) -> None:
        kind, number = message[:2]
        if kind == protocol.STATE:
            self._is_available = bool(message[3])
            self._has_state.set()
            self.on_state()
            return
        call = self._calls.pop(number, None)
        if call is None:
            return
        if kind == protocol.OTHER_SIGNATURE:
            self._retries.run_soon(self._retry, call)
        elif kind == protocol.ERROR:
            call.complete(protocol.unpack_error(message[3]))
        else:
            call.complete(message)

    def _retry(self, call: RemoteCall) -> None:
        assert call.retry is not None
        try:
            call.complete(call.retry())
        except Exception as error:
            call.complete(error)

    def _disconnect(self, channel: Channel) -> None:
        if self._channel is channel:
            self._channel = None
            self._has_state.set()
            self._on_disconnected()
        for number, call in list(self._calls.items()):
            if call.channel is channel and self._calls.pop(number, None) is not None:
                call.complete(Unavailable(_NO_ENGINE))
