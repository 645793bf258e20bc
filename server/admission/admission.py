"""Admission control: the bound on requests in flight, readiness and draining."""

import ipaddress
import threading
from collections.abc import Callable
from functools import lru_cache

from tpuserve.errors import Code, CodedError, InvalidSetting, ShuttingDown

# The number of leading bits of an IPv6 address that identify a client, in the limits per client.
# One client usually owns all addresses with the same leading bits.
_IPV6_NETWORK_BITS = 64


@lru_cache(maxsize=4096)
def network_of_host(host: str) -> str:
    """Return the name under which the requests of a host are counted, for limits per client.

    Args:
      host: The IP address of the host that has opened the connection, or another text, such as the
        path of a UNIX socket.

    Returns:
      For an IPv4 address, also in its IPv6 form ::ffff:1.2.3.4: the IPv4 address. For any other
      IPv6 address: its /64 network. For any other text: the text itself.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        network = ipaddress.IPv6Network((address, _IPV6_NETWORK_BITS), strict=False)
        return str(network)
    return str(address)


UNREAD_RESPONSE_SECONDS = 20.0
"""How long a client may read nothing of a response, over REST and gRPC, until it is given up."""


class AdmissionController:
    """Counts the requests in flight, bounds their number, and refuses new requests while draining.

    The frontend (the REST or the gRPC server) that receives a request counts it with `acquire`.
    The layers behind the frontend do not count the request again.

    Attributes:
      max_requests_in_flight: The largest number of requests in flight. None means no bound.
      max_requests_in_flight_per_peer: The largest number of requests in flight from one client, so
        that one client cannot use the whole bound. None means no bound.
    """

    def __init__(
        self,
        max_requests_in_flight: int | None = None,
        max_requests_in_flight_per_peer: int | None = None,
    ) -> None:
        if max_requests_in_flight is not None and max_requests_in_flight < 0:
            raise InvalidSetting(
                f"--max_requests_in_flight is {max_requests_in_flight}. Use a positive number, "
                f"or 0 for no bound."
            )
        self.max_requests_in_flight = max_requests_in_flight or None
        self.max_requests_in_flight_per_peer = max_requests_in_flight_per_peer or None
        self._in_flight = 0
        # The name of a client → the number of its requests in flight. Clients without a request in
        # flight are removed, so that the dictionary stays small.
        self._in_flight_of_peers: dict[str, int] = {}
        self._is_draining = False
        self._has_started = False
        self._describe_startup: Callable[[], str] | None = None
        self._num_waiters = 0
        # The threads of requests acquire `_lock` itself, and not the condition `_idle`, which wraps
        # `_lock`: acquiring the condition takes twice as long.
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)

    @property
    def in_flight(self) -> int:
        """The number of requests in flight."""
        return self._in_flight

    @property
    def is_draining(self) -> bool:
        """Whether `drain` was called."""
        return self._is_draining

    @property
    def is_ready(self) -> bool:
        """Whether load balancers should send requests; True from `mark_ready` until `drain`."""
        return self._has_started and self._describe_startup is None and not self._is_draining

    @property
    def startup_activity(self) -> str:
        """The activity of a starting server, such as "importing TensorFlow"; "" after the start."""
        describe = self._describe_startup
        return "" if describe is None else describe()

    def begin_startup(self, describe: Callable[[], str]) -> None:
        """Report, until `mark_ready` is called, that the server is not ready and what it does.

        Call this method again with another function when another activity of the start begins.

        Args:
          describe: Returns the current activity as text, such as "importing TensorFlow".
            `startup_activity` calls this function and returns its result.
        """
        self._describe_startup = describe

    def mark_ready(self) -> None:
        """Report the server as ready from now on. Call this when the first models are loaded."""
        self._has_started = True
        self._describe_startup = None

    def drain(self) -> None:
        """Refuse new requests from now on. Requests in flight continue."""
        with self._lock:
            self._is_draining = True

    def raise_if_draining(self) -> None:
        """Refuse a new request early, before `acquire` counts it, if the server is draining."""
        if self._is_draining:
            raise ShuttingDown("the server is shutting down. Send the request to another server.")

    def wait_until_idle(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no request is in flight.

        Args:
          timeout_seconds: The longest wait. None means no limit.
        """
        with self._idle:
            self._num_waiters += 1
            try:
                return self._idle.wait_for(lambda: self._in_flight == 0, timeout_seconds)
            finally:
                self._num_waiters -= 1

    def acquire(self, peer: str = "") -> None:
        """Count one more request in flight.

        The caller must call `release` once when the request ends.

        Args:
          peer: The name of the client, from `peers.network_of_host`. "" for a client to which
            `max_requests_in_flight_per_peer` does not apply.

        Raises:
          CodedError: `max_requests_in_flight` requests of all clients, or
            `max_requests_in_flight_per_peer` requests of this client, are already in flight.
        """
        with self._lock:
            self.raise_if_draining()
            limit = self.max_requests_in_flight
            if limit is not None and self._in_flight >= limit:
                raise CodedError(
                    f"{self._in_flight} requests are in flight, and --max_requests_in_flight is "
                    f"{limit}. Send the request again later.",
                    Code.RESOURCE_EXHAUSTED,
                )
            limit = self.max_requests_in_flight_per_peer
            if limit is not None and peer:
                count = self._in_flight_of_peers.get(peer, 0)
                if count >= limit:
                    raise CodedError(
                        f"{count} requests of {peer} are in flight, and "
                        f"--max_requests_in_flight_per_peer is {limit}. Send the request again "
                        f"later.",
                        Code.RESOURCE_EXHAUSTED,
                    )
                self._in_flight_of_peers[peer] = count + 1
            self._in_flight += 1

    def release(self, peer: str = "") -> None:
        """Count one request less in flight."""
        with self._lock:
            self._in_flight -= 1
            count = self._in_flight_of_peers.get(peer)
            if count == 1:
                del self._in_flight_of_peers[peer]
            elif count is not None:
                self._in_flight_of_peers[peer] = count - 1
            if self._num_waiters and not self._in_flight:
                self._idle.notify_all()
