"""Bounds the number of open connections, of all clients and of one client."""

from collections import Counter


class ConnectionLimit:
    """Counts the open connections of a server. Not thread-safe: the event loop uses it.

    Args:
      max_connections: The largest number of connections. 0 means no limit.
      max_per_peer: The largest number of connections of one client. 0 means no limit.
    """

    def __init__(self, max_connections: int = 0, max_per_peer: int = 0) -> None:
        self._max_connections = max_connections
        self._max_per_peer = max_per_peer
        self._num_connections = 0
        self._num_of_peers: Counter[str] = Counter()

    def add(self, peer: str) -> bool:
        """Count a connection of a client, "" if unknown; return whether it is within the limits."""
        self._num_connections += 1
        self._num_of_peers[peer] += 1
        is_surplus = 0 < self._max_connections < self._num_connections
        return not is_surplus and not (peer and 0 < self._max_per_peer < self._num_of_peers[peer])

    def remove(self, peer: str) -> None:
        """Count one connection of a client less."""
        self._num_connections -= 1
        self._num_of_peers[peer] -= 1
        if not self._num_of_peers[peer]:
            del self._num_of_peers[peer]
