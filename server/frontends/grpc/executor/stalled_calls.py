"""Bounds the calls whose first message is late, and ends those whose response nobody reads."""

import logging
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from server.admission.admission import UNREAD_RESPONSE_SECONDS
from server.frontends.grpc import peers
from server.process.alarm import log_exceptions

# The format of the fields `tcpi_bytes_acked` and `tcpi_bytes_received` in the struct tcp_info of
# Linux, and their offsets. Source: include/uapi/linux/tcp.h.
_FORMAT, _ACKED_OFFSET, _RECEIVED_OFFSET = "=Q", 120, 128
_SIZE = _RECEIVED_OFFSET + struct.calcsize(_FORMAT)
_DESCRIPTORS = "/proc/self/fd"


def received_bytes_by_address() -> dict[tuple[str, int], int]:
    """Return how many bytes each TCP connection of this process has received.

    The counts show how much of an incomplete gRPC message has arrived, which gRPC does not report.

    Returns:
      IP address and port of the client → number of bytes received since the connection was opened.
      Empty on a system other than Linux, where /proc and TCP_INFO do not exist.
    """
    return _counts_by_address(_RECEIVED_OFFSET)


def read_bytes_by_address() -> dict[tuple[str, int], int]:
    """Return how many bytes the client of each TCP connection of this process has acknowledged.

    The counts show whether a client reads its responses. Result as `received_bytes_by_address`.
    """
    return _counts_by_address(_ACKED_OFFSET)


def _counts_by_address(offset: int) -> dict[tuple[str, int], int]:
    counts: dict[tuple[str, int], int] = {}
    try:
        descriptors = os.listdir(_DESCRIPTORS)
    except OSError:
        return counts
    for descriptor in descriptors:
        try:
            connection = socket.socket(fileno=int(descriptor))
        except OSError:
            continue  # Skip a descriptor that is no socket, or was closed after `listdir`.
        try:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                host, port = connection.getpeername()[:2]
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
                (count,) = struct.unpack_from(_FORMAT, info, offset)
                counts[host.removeprefix("::ffff:"), port] = count
        except (OSError, struct.error):
            # Skip a UDP or listening socket. On a Linux whose tcp_info lacks the number of received
            # bytes, all sockets are skipped.
            continue
        finally:
            # Keep the socket object from closing the descriptor, which belongs to gRPC.
            connection.detach()
    return counts


MESSAGE_TIMEOUT_SECONDS = 10.0
"""How long a call may wait for its message on a connection below `_MIN_BYTES_PER_SECOND`."""

MAX_WAITING_CALLS = 8000
"""The largest number of calls that wait for their first message."""

MAX_WAITING_CALLS_PER_PEER = 1000
"""The largest number of calls of one client address that wait for their first message."""

_MIN_BYTES_PER_SECOND = 1000
_CHECK_INTERVAL_SECONDS = 1

Address = tuple[str, int]

logger = logging.getLogger(__name__)


class CancellableCall(Protocol):
    """The interface of a call that has begun: the methods that this module needs.

    Both a grpc.ServicerContext and grpcio's private object for a call have these methods.
    """

    def cancel(self) -> object:
        """Cancel the call."""

    def peer(self) -> str | bytes:
        """Return the address of the client."""


@dataclass(frozen=True)
class StalledCallLimits:
    """The limits on calls whose first message has not arrived.

    Attributes:
      timeout_seconds: the time in seconds after which such a call is cancelled, if its connection
        has received fewer than 1000 bytes per second on average.
      max_calls: the largest number of such calls.
      max_calls_per_peer: the largest number of such calls from one client address.
      max_pending_bytes: the largest total size in bytes of the incomplete messages, which gRPC
        keeps in memory.
      clock: returns the time in seconds since any fixed moment.
      received_bytes: returns how many bytes each connection has received: IP address and port of
        the client → number of bytes.
      needs_count: whether a call whose connection has no count of bytes is never cancelled.
    """

    timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS
    max_calls: int = MAX_WAITING_CALLS
    max_calls_per_peer: int = MAX_WAITING_CALLS_PER_PEER
    max_pending_bytes: int = sys.maxsize
    clock: Callable[[], float] = time.monotonic
    received_bytes: Callable[[], dict[Address, int]] = received_bytes_by_address
    fault: str = "their messages have not arrived in time"
    needs_count: bool = False


def limit_unread_responses() -> StalledCallLimits:
    """Return the limits on calls whose client has yet to read the response."""
    return StalledCallLimits(
        timeout_seconds=UNREAD_RESPONSE_SECONDS,
        max_calls=sys.maxsize,
        max_calls_per_peer=sys.maxsize,
        received_bytes=read_bytes_by_address,
        fault="their clients do not read the responses",
        needs_count=True,
    )


class _Wait(NamedTuple):
    """The wait of a call for its first message."""

    since: float
    peer: str
    peer_name: str


class StalledCallReaper:
    """Tracks the calls whose first message has not arrived, and cancels calls beyond the limits.

    When too many calls wait, the oldest calls are cancelled, because a client normally sends the
    message soon after its call has begun.
    """

    def __init__(self, limits: StalledCallLimits) -> None:
        self._limits = limits
        self._clock = limits.clock
        # The calls that wait for their first message, the oldest first.
        self._waits: dict[CancellableCall, _Wait] = {}
        # Name of a client → the number of its calls that wait for their first message.
        self._num_waits: dict[str, int] = {}
        # For each connection with waiting calls: IP address and port of the client → (count, time).
        # The count is the number of bytes that the connection had received at that time.
        self._progress: dict[Address, tuple[int, float]] = {}
        # Waiting call → the number of bytes that its connection had received before the call began.
        self._first_counts: dict[CancellableCall, int] = {}
        # IP address and port of a client → the number of bytes that its connection had received at
        # the last count.
        self._last_counts: dict[Address, int] = {}
        self._next_count_time = 0.0
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    @property
    def has_waiting_calls(self) -> bool:
        """Whether any call waits for its first message."""
        return bool(self._waits)

    def track(self, call: CancellableCall) -> str:
        """Add a call whose first message has not arrived.

        If there are too many such calls, the oldest calls are cancelled.
        """
        peer = call.peer()
        peer = peer if isinstance(peer, str) else peer.decode("utf-8", "replace")
        name = peers.peer_name(peer)
        limits, surplus = self._limits, []
        with self._lock:
            self._waits[call] = _Wait(self._clock(), peer, name)
            count = self._num_waits[name] = self._num_waits.get(name, 0) + 1
            if name and count > limits.max_calls_per_peer:
                surplus = self._oldest(limits.max_calls_per_peer, name)
            elif len(self._waits) > limits.max_calls:
                surplus = self._oldest(limits.max_calls)
            for old_call in surplus:
                self._remove(old_call)
        for old_call in surplus:
            old_call.cancel()
        return name

    def untrack(self, call: CancellableCall) -> None:
        """Stop tracking a call: its first message has arrived, or the call has ended."""
        with self._lock:
            self._remove(call)

    @contextmanager
    def tracking(self, call: CancellableCall) -> Iterator[None]:
        """Return a context manager that tracks a call while the `with` body runs.

        The body must wait for the first message of the call.
        """
        self.track(call)
        try:
            yield
        finally:
            self.untrack(call)

    def calls_waiting_longer_than(self, seconds: float) -> list[CancellableCall]:
        """Return the calls that have waited for their first message for more than `seconds`."""
        limit = self._clock() - seconds
        with self._lock:
            return [call for call, wait in self._waits.items() if wait.since < limit]

    def cancel_stalled(self) -> None:
        """Cancel the calls that have waited too long, or whose incomplete messages are too large.

        Call this function every `_CHECK_INTERVAL_SECONDS`.
        """
        with self._lock:
            all_waits = dict(self._waits)
        limit = self._clock() - _CHECK_INTERVAL_SECONDS
        waits = {call: wait for call, wait in all_waits.items() if wait.since < limit}
        last_counts, counts = self._last_counts, self._count_received_bytes(bool(waits))
        self._note_first_counts(all_waits, last_counts)
        # Check the memory of all waiting calls, even of those that have just begun: gRPC can
        # already hold large parts of their messages in memory.
        calls = {*self._find_stalled(waits, counts), *self._find_largest(all_waits, counts)}
        if calls:
            logger.warning("%d calls are cancelled: %s", len(calls), self._limits.fault)
        for call in calls:
            call.cancel()

    def _count_received_bytes(self, is_needed: bool) -> dict[Address, int]:
        now = self._clock()
        if is_needed or now >= self._next_count_time:
            started = time.monotonic()
            self._last_counts = self._limits.received_bytes()
            self._next_count_time = now + 100 * (time.monotonic() - started)
        return self._last_counts

    def _note_first_counts(
        self, waits: dict[CancellableCall, _Wait], last_counts: dict[Address, int]
    ) -> None:
        """Store, for each new call, how many bytes its connection had received before the call."""
        self._first_counts = {
            call: self._first_counts.get(call, last_counts.get(peers.split_peer(wait.peer), 0))
            for call, wait in waits.items()
        }

    def _find_stalled(
        self, waits: dict[CancellableCall, _Wait], counts: dict[Address, int]
    ) -> list[CancellableCall]:
        now, timeout_seconds = self._clock(), self._limits.timeout_seconds
        last_progress, self._progress = self._progress, {}
        stalled = []
        for call, wait in waits.items():
            address = peers.split_peer(wait.peer)
            if self._limits.needs_count and address not in counts:
                continue
            if address not in self._progress:
                count = counts.get(address, 0)
                last_count, last_time = last_progress.get(address, (count, wait.since))
                if count - last_count >= _MIN_BYTES_PER_SECOND * timeout_seconds:
                    last_count, last_time = count, now
                self._progress[address] = last_count, last_time
            if now - max(self._progress[address][1], wait.since) > timeout_seconds:
                stalled.append(call)
        return stalled

    def _find_largest(
        self, waits: dict[CancellableCall, _Wait], counts: dict[Address, int]
    ) -> list[CancellableCall]:
        calls: dict[Address, list[CancellableCall]] = {}
        for call, wait in waits.items():
            calls.setdefault(peers.split_peer(wait.peer), []).append(call)
        pending = {
            address: counts.get(address, 0)
            - min(map(self._first_counts.__getitem__, address_calls))
            for address, address_calls in calls.items()
        }
        largest: list[CancellableCall] = []
        total = sum(pending.values())
        for address in sorted(pending, key=pending.__getitem__, reverse=True):
            if total <= self._limits.max_pending_bytes:
                break
            total -= pending[address]
            largest += calls[address]
        return largest

    def start(self, check: Callable[[], object] | None = None) -> None:
        """Start a thread that calls a function every second until `close` is called."""

        def run() -> None:
            while not self._is_closed.wait(_CHECK_INTERVAL_SECONDS):
                # No file may be left to read the counts from. The next check may succeed.
                with log_exceptions():
                    (check or self.cancel_stalled)()

        threading.Thread(target=run, name="grpc-watch", daemon=True).start()

    def close(self) -> None:
        """End the thread that `start` has started."""
        self._is_closed.set()

    def _oldest(self, limit: int, peer_name: str | None = None) -> list[CancellableCall]:
        """Return the oldest calls, to be cancelled because more than `limit` calls wait."""
        calls = (
            call
            for call, wait in self._waits.items()
            if peer_name is None or wait.peer_name == peer_name
        )
        return list(islice(calls, max(1, limit // 8)))

    def _remove(self, call: CancellableCall) -> None:
        """Stop tracking a call, unless it was removed before. The caller must hold the lock."""
        wait = self._waits.pop(call, None)
        if wait is None:
            return
        self._num_waits[wait.peer_name] -= 1
        if not self._num_waits[wait.peer_name]:
            del self._num_waits[wait.peer_name]
