"""A forwarder of TCP connections, which stay open here when the other host ends.

jax's client ends its process with a stack trace of C++ as soon as its connection to the service on
host 0 ends. Through a forwarder on the own host, the client only notices that no answers come, and
`HostGroup` has the time to say in one line which host is lost.
"""

import socket
import threading

_LOOPBACK = "127.0.0.1"
_BUFFER_BYTES = 65_536


class Forwarder:
    """Listens on a port of this host and forwards each connection to another host.

    Attributes:
      address: the address to connect to, "127.0.0.1:PORT".
    """

    def __init__(self, host: str, port: int) -> None:
        """Start to listen.

        Args:
          host: the name of the other host.
          port: its port.
        """
        self._target = host, port
        self._listener = socket.create_server((_LOOPBACK, 0))
        self.address = f"{_LOOPBACK}:{self._listener.getsockname()[1]}"
        # The accepted connections are kept, because the end of the object would close them.
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
    """Copy bytes from one socket to another until one of the connections ends."""
    try:
        while data := source.recv(_BUFFER_BYTES):
            sink.sendall(data)
    except OSError:
        return
