"""The memory budget: the bound on the memory of all requests together."""

import threading
from collections.abc import Callable
from types import TracebackType

from tpuserve import validation
from tpuserve.errors import MemoryBudgetExceeded, RequestTooLarge

# A request that gives back at least this number of bytes at its end is large.
_LARGE_BYTES = 1 << 20


class MemoryBudget:
    """Bounds the memory that the requests of a server use together, whatever their protocol.

    A frontend reserves memory for a request before it allocates the memory: for the body, for the
    inflated body, for the values that parsing creates, and for the tensors.

    Attributes:
      max_bytes: The largest number of bytes that all requests may reserve together.
    """

    def __init__(
        self, max_bytes: int, on_large_release: Callable[[], object] = lambda: None
    ) -> None:
        validation.check_integer("--max_request_memory_bytes", max_bytes, least=1)
        self.max_bytes = max_bytes
        self._on_large_release = on_large_release
        self._reserved_bytes = 0
        self._lock = threading.Lock()

    @property
    def reserved_bytes(self) -> int:
        """The number of bytes that all requests have reserved together."""
        return self._reserved_bytes

    def reserve(self, num_bytes: int = 0) -> "MemoryReservation":
        """Reserve memory for one request.

        Args:
          num_bytes: The number of bytes to reserve now; `MemoryReservation.grow` adds more later.

        Returns:
          The reservation. The caller must call its `release` when the request ends.

        Raises:
          RequestTooLarge: The request alone needs more than the whole budget.
          MemoryBudgetExceeded: All requests together would need more than the budget.
        """
        reservation = MemoryReservation(self)
        if num_bytes:
            reservation.grow(num_bytes)
        return reservation

    def _add(self, num_bytes: int) -> None:
        with self._lock:
            self._reserved_bytes += num_bytes
            if num_bytes < 0 or self._reserved_bytes <= self.max_bytes:
                return
            self._reserved_bytes -= num_bytes
        raise MemoryBudgetExceeded(
            f"the request needs {num_bytes} bytes more, and with them the requests in flight would "
            f"need more than {self.max_bytes} bytes (--max_request_memory_bytes). Send the request "
            f"again later."
        )


class MemoryReservation:
    """The bytes that one request has reserved from a `MemoryBudget`.

    As a context manager, the reservation is released at the end of the `with` block. Only one
    thread at a time may use a reservation.
    """

    __slots__ = ("_budget", "num_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.num_bytes = 0

    def grow(self, num_bytes: int) -> None:
        """Reserve more memory. If this fails, the reservation keeps its size.

        Raises:
          RequestTooLarge: The request alone needs more than the whole budget.
          MemoryBudgetExceeded: All requests together would need more than the budget.
        """
        if self.num_bytes + num_bytes > self._budget.max_bytes:
            raise RequestTooLarge(
                f"the request needs {self.num_bytes + num_bytes} bytes of memory, more than the "
                f"{self._budget.max_bytes} bytes that all requests may use together "
                f"(--max_request_memory_bytes). Send less at a time."
            )
        self._budget._add(num_bytes)
        self.num_bytes += num_bytes

    def shrink(self, num_bytes: int) -> None:
        """Give back `num_bytes` of the reserved bytes, after their memory was freed."""
        self._budget._add(-num_bytes)
        self.num_bytes -= num_bytes

    def resize(self, num_bytes: int) -> None:
        """Change the size to `num_bytes`. Raises the errors of `grow`."""
        if num_bytes > self.num_bytes:
            self.grow(num_bytes - self.num_bytes)
        else:
            self.shrink(self.num_bytes - num_bytes)

    def release(self) -> None:
        """Give back all reserved bytes. Further calls have no effect."""
        num_bytes = self.num_bytes
        if num_bytes:
            self.shrink(num_bytes)
            if num_bytes >= _LARGE_BYTES:
                self._budget._on_large_release()

    def __enter__(self) -> "MemoryReservation":
        """Return the reservation itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the reservation."""
        self.release()
