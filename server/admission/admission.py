"""Admission control: the bound on requests in flight, readiness and draining."""

import threading

from tpuserve.errors import InvalidSetting, TooManyRequests, Unavailable


class AdmissionController:
    """Counts the requests in flight, bounds their number, and refuses new requests while draining.

    The frontend that receives a request acquires one slot for the request. The data plane does not
    count the request again.

    Attributes:
      max_requests_in_flight: The largest number of requests in flight. None means no bound.
    """

    def __init__(self, max_requests_in_flight: int | None = None) -> None:
        """Create a controller that is neither ready nor draining.

        Args:
          max_requests_in_flight: The largest number of requests in flight. None and 0 mean no
            bound.

        Raises:
          InvalidSetting: The bound is negative.
        """
        if max_requests_in_flight is not None and max_requests_in_flight < 0:
            raise InvalidSetting(
                f"--max_requests_in_flight is {max_requests_in_flight}. Use a positive number, "
                f"or 0 for no bound."
            )
        self.max_requests_in_flight = max_requests_in_flight or None
        self._in_flight = 0
        self._is_draining = False
        self._has_started = False
        self._num_waiters = 0
        # A request acquires this lock directly, because acquiring it through the condition takes
        # twice as long.
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
        """Whether load balancers should send new requests: started, and not draining."""
        return self._has_started and not self._is_draining

    def mark_ready(self) -> None:
        """Report the server as ready from now on. Call once the first models are loaded."""
        self._has_started = True

    def drain(self) -> None:
        """Refuse new requests from now on. Requests in flight continue."""
        with self._lock:
            self._is_draining = True

    def wait_until_idle(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no request is in flight.

        Args:
          timeout_seconds: The longest wait. None means no limit.

        Returns:
          True if no request is in flight, False if the wait timed out.
        """
        with self._idle:
            self._num_waiters += 1
            try:
                return self._idle.wait_for(lambda: self._in_flight == 0, timeout_seconds)
            finally:
                self._num_waiters -= 1

    def acquire(self) -> None:
        """Count one more request in flight. Each call needs one call of `release`.

        Raises:
          Unavailable: The server is draining.
          TooManyRequests: `max_requests_in_flight` requests are in flight.
        """
        with self._lock:
            if self._is_draining:
                raise Unavailable("the server is shutting down. Send the request to another one.")
            limit = self.max_requests_in_flight
            if limit is not None and self._in_flight >= limit:
                raise TooManyRequests(
                    f"{self._in_flight} requests are in flight, and --max_requests_in_flight is "
                    f"{limit}. Send the request again later."
                )
            self._in_flight += 1

    def release(self) -> None:
        """Count one request less in flight."""
        with self._lock:
            self._in_flight -= 1
            if self._num_waiters and not self._in_flight:
                self._idle.notify_all()
