"""The connection between the supervisor and one of its processes."""

import socket
import threading
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, NamedTuple


class ControlMessage(NamedTuple):
    """A message between the supervisor and a process.

    Attributes:
      name: the meaning of the message, such as "ready".
      value: any value that pickle supports.
      connection: a socket that is handed over; None for no socket.
    """

    name: str
    value: Any = None
    connection: socket.socket | None = None


class ControlChannel:
    """One end of a connection, which is closed when the process at the other end ends.

    `send` is thread-safe; one thread may call `receive`.
    """

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        """Create a channel on one end of a `multiprocessing.Pipe`."""
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, name: str, value: Any = None, connection: socket.socket | None = None) -> None:
        """Send a message; do nothing if the other process is gone.

        Args:
          name: the meaning of the message.
          value: any value that pickle supports.
          connection: a socket to hand over; it stays open in this process.
        """
        try:
            with self._lock:
                self._connection.send((name, value, connection is not None))
                if connection is not None:
                    reduction.send_handle(self._connection, connection.fileno(), None)
        except OSError:
            # Ignore the error: `receive` reports that the other process is gone.
            return

    def receive(self) -> ControlMessage | None:
        """Wait for the next message; return None if the other process is gone."""
        try:
            name, value, has_socket = self._connection.recv()
            if not has_socket:
                return ControlMessage(name, value)
            handle = reduction.recv_handle(self._connection)
            return ControlMessage(name, value, socket.socket(fileno=handle))
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        """Close this end."""
        self._connection.close()
