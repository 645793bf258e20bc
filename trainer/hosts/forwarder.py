"""A forwarder of TCP connections that keeps the local side open when the remote host is lost.

On each host except host 0, jax's client connects to jax's coordination service on host 0. When this
connection ends, the client ends the process at once, with a C++ stack trace. So the client connects
to a forwarder in its own process instead. Then its connection stays open when host 0 is lost, and
the client only waits for answers. In this time, `HostGroup` can print which host is lost, in one
line.
"""

import socket
import threading

_LOOPBACK = "127.0.0.1"
_BUFFER_BYTES = 65_536


class Forwarder:
    """Listens on a free port of the loopback address and forwards each connection to another host.

    Attributes:
      address: the local address that is forwarded, "127.0.0.1:PORT".
    """

    def __init__(self, host: str, port: int) -> None:
        """Start to listen; a thread accepts and forwards connections.

        Args:
          host: the name of the host to which connections are forwarded.
          port: the port on that host.
        """
        self._target = host, port
        self._listener = socket.create_server((_LOOPBACK, 0))
        self.address = f"{_LOOPBACK}:{self._listener.getsockname()[1]}"
        # Keep a reference to each accepted socket, so that it stays open. Python closes a socket
        # when it is garbage-collected.
        self._accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, name="hosts-forward", daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            self._accepted.append(near)
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(
                    target=_copy, args=(source, sink), name="hosts-forward", daemon=True
                ).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes from one socket to another until either connection ends; leave both open."""
    try:
        while data := source.recv(_BUFFER_BYTES):
            sink.sendall(data)
    except OSError:
        return
