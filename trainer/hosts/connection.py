"""A TCP connection that carries messages as JSON, one in each line."""

import contextlib
import json
import socket
import threading
from typing import Any

# The longest message in bytes. A longer line cannot come from a host of the program, so `receive`
# treats it as the end of the connection.
_MAX_BYTES = 2**24


class Connection:
    """A connection to the process of another host; any thread may send, one thread receives."""

    def __init__(self, connected: socket.socket) -> None:
        """Take over a connected socket."""
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._lines = connected.makefile("rb")
        self._lock = threading.Lock()

    def send(self, **message: Any) -> None:
        """Send a message.

        Raises:
          OSError: the connection has ended.
        """
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._socket.sendall(line)

    def receive(self, timeout_secs: float | None = None) -> dict[str, Any] | None:
        """Wait for the next message; return None if the connection ends or sends anything else.

        Args:
          timeout_secs: how long to wait, in seconds; None waits without limit.

        Raises:
          TimeoutError: no message has arrived in time.
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
        """End the connection. A thread that waits in `receive` wakes up, and gets None."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and free its socket; no thread may use it any longer."""
        self.shut_down()
        self._lines.close()
        self._socket.close()
