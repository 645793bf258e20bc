"""How much a server takes on at a time, and whether it takes anything on at all."""

import threading
from types import TracebackType

from tpuserve.errors import InvalidSetting, TooManyRequests, Unavailable


class Limits:
    """The requests in flight: counted, bounded, and refused once the server drains.

    A request is counted once, in the face that takes it or in the data plane: whichever was
    given the limits to enforce.

    Attributes:
      max_requests_in_flight: how many are answered at a time; None for any number.
    """

    def __init__(self, max_requests_in_flight: int | None = None) -> None:
        """Takes the bound; None or 0 for none.

        Raises:
          InvalidSetting: a negative bound.
        """
        if max_requests_in_flight is not None and max_requests_in_flight < 0:
            raise InvalidSetting(
                f"--max_requests_in_flight is {max_requests_in_flight}. Give a positive number, "
                f"or 0 for no bound."
            )
        self.max_requests_in_flight = max_requests_in_flight or None
        self._in_flight = 0
        self._is_draining = False
        self._is_serving = False
        self._waiting = 0
        # The lock itself is what requests take: through the condition it costs twice as much.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def request(self) -> "_InFlight":
        """A block in which one request is in flight.

        Raises:
          Unavailable: on entering, once the server drains.
          TooManyRequests: on entering, while as many as may be are in flight.
        """
        return _InFlight(self)

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
        """Whether new requests should be sent here: started, and not draining."""
        return self._is_serving and not self._is_draining

    def serve(self) -> None:
        """Says that the models are there to answer: the server is ready from here on."""
        self._is_serving = True

    def drain(self) -> None:
        """Refuses new requests from here on; those in flight go on."""
        with self._changed:
            self._is_draining = True

    def wait_until_idle(self, timeout_seconds: float | None = None) -> bool:
        """Waits until no request is in flight.

        Returns:
          Whether that is so; False if it took longer.
        """
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(lambda: self._in_flight == 0, timeout_seconds)
            finally:
                self._waiting -= 1

    def enter(self) -> None:
        """Begins a request; `leave` ends it. For where a block does not fit.

        Raises:
          Unavailable, TooManyRequests: as of `request`.
        """
        with self._lock:
            if self._is_draining:
                raise Unavailable("the server is shutting down. Send the request to another one.")
            most = self.max_requests_in_flight
            if most is not None and self._in_flight >= most:
                raise TooManyRequests(
                    f"{self._in_flight} requests are in flight, and --max_requests_in_flight is "
                    f"{most}. Send the request again later."
                )
            self._in_flight += 1

    def leave(self) -> None:
        """Ends a request that `enter` began."""
        with self._lock:
            self._in_flight -= 1
            if self._waiting and not self._in_flight:
                self._changed.notify_all()


class _InFlight:
    # A class, since a generator's context manager costs three times as much a request.
    __slots__ = ("_limits",)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def __enter__(self) -> None:
        self._limits.enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limits.leave()
