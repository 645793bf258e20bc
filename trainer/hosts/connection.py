"""A TCP connection between two hosts of a program, with a JSON message in each line."""

import contextlib
import json
import socket
import threading
from typing import Any

# The largest length of a message in bytes. A message is one line. A longer line cannot come from a
# host of the program, so `receive` treats such a line as the end of the connection.
_MAX_BYTES = 2**24


class Connection:
    """A connection to the process of another host.

    Any thread may send messages, but only one thread may receive them.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._lines = connected.makefile("rb")
        self._lock = threading.Lock()

    def send(self, **message: Any) -> None:
        """Send a message."""
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._socket.sendall(line)

    def receive(self, timeout_secs: float | None = None) -> dict[str, Any] | None:
        """Wait for the next message.

        Args:
          timeout_secs: how long to wait, in seconds; None waits without limit.

        Returns:
          The entries of the message. None if the connection has ended, or if the received line is
          no message.
        """
        self._socket.settimeout(timeout_secs)
        try:
            line = self._lines.readline(_MAX_BYTES)
            message = json.loads(line) if line.endswith(b"\n") else None
        except TimeoutError:
            raise
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None

    def shut_down(self) -> None:
        """End the connection. A `receive` that waits in another thread returns None."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and close its socket; no thread may use the object afterwards."""
        self.shut_down()
        self._lines.close()
        self._socket.close()
