"""The connection for control messages between the supervisor and one of its processes."""

import socket
import threading
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, NamedTuple


class ControlMessage(NamedTuple):
    """A message between the supervisor and one of its processes.

    Attributes:
      name: the meaning of the message, such as "ready".
      value: any value that pickle supports.
      connection: a socket that the message passes to the other process; None for no socket.
    """

    name: str
    value: Any = None
    connection: socket.socket | None = None


class ControlChannel:
    """One end of a connection between the supervisor and a process.

    The connection is closed when the process that holds the other end exits.

    Several threads can call `send` at the same time. Only one thread at a time can call `receive`.
    """

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        """Create a channel on one end of a `multiprocessing.Pipe`."""
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, name: str, value: Any = None, connection: socket.socket | None = None) -> None:
        """Send a message; do nothing if the other process has ended.

        Args:
          name: the meaning of the message.
          value: any value that pickle supports.
          connection: a socket to pass to the other process; it stays open in this process too.
        """
        try:
            with self._lock:
                self._connection.send((name, value, connection is not None))
                if connection is not None:
                    reduction.send_handle(self._connection, connection.fileno(), None)
        except OSError:
            # The other process has ended, which `receive` reports. So ignore the error.
            return

    def receive(self) -> ControlMessage | None:
        """Wait for the next message; return None if the other process has ended."""
        try:
            name, value, has_socket = self._connection.recv()
            if not has_socket:
                return ControlMessage(name, value)
            handle = reduction.recv_handle(self._connection)
            return ControlMessage(name, value, socket.socket(fileno=handle))
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        """Close this end of the connection."""
        self._connection.close()
