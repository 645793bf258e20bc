"""Bounds the number and the waiting time of calls whose first message has not arrived."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from server.frontends.grpc import peers
from server.frontends.grpc.executor.received_bytes import received_bytes_by_address

MESSAGE_TIMEOUT_SECONDS = 10.0
"""How long a call may wait for its message on a connection below `_MIN_BYTES_PER_SECOND`.

A client on a slow line may send a large message for any time, but cannot keep a call open with a
byte now and then.
"""

MAX_WAITING_CALLS = 8000
"""The largest number of calls that wait for their first message."""

MAX_WAITING_CALLS_PER_PEER = 1000
"""The largest number of calls of one client address that wait for their first message."""

_MIN_BYTES_PER_SECOND = 1000
_CHECK_INTERVAL_SECONDS = 1

Address = tuple[str, int]

logger = logging.getLogger(__name__)


class CancellableCall(Protocol):
    """A call that has begun: a ServicerContext, or grpcio's private object for a call."""

    def cancel(self) -> object:
        """Cancel the call."""

    def peer(self) -> str | bytes:
        """Return the address of the client."""


@dataclass(frozen=True)
class StalledCallLimits:
    """The limits of calls whose first message has not arrived.

    Attributes:
      timeout_seconds: the time after which a call is cancelled if its connection has received
        almost nothing meanwhile.
      max_calls: the largest number of such calls.
      max_calls_per_peer: the largest number of such calls of one client address.
      max_pending_bytes: the largest number of bytes that connections with such calls may receive
        together since their oldest call has begun. gRPC keeps incomplete messages in memory.
      clock: returns the time in seconds; only differences matter.
      received_bytes: returns the bytes received by each connection: address and port of the
        client → bytes.
    """

    timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS
    max_calls: int = MAX_WAITING_CALLS
    max_calls_per_peer: int = MAX_WAITING_CALLS_PER_PEER
    max_pending_bytes: int = sys.maxsize
    clock: Callable[[], float] = time.monotonic
    received_bytes: Callable[[], dict[Address, int]] = received_bytes_by_address


class _Wait(NamedTuple):
    """The wait of a call for its first message.

    Attributes:
      since: when the wait began, in seconds of the reaper's clock.
      peer: the client's address, as grpcio gives it.
      peer_name: the client's name, from `peers.peer_name`.
    """

    since: float
    peer: str
    peer_name: str


class StalledCallReaper:
    """Tracks the calls that wait for their first message, and cancels those beyond the limits.

    When too many calls wait, the oldest ones are cancelled, because the message of an honest client
    arrives soon after its call has begun.
    """

    def __init__(self, limits: StalledCallLimits) -> None:
        """Create a reaper that tracks no call yet."""
        self._limits = limits
        self._clock = limits.clock
        # The calls that wait for their first message, the oldest first; and the number of such
        # calls for each name of a client.
        self._waits: dict[CancellableCall, _Wait] = {}
        self._num_waits: dict[str, int] = {}
        # For each connection with waiting calls, the last check at which the connection was as fast
        # as `_MIN_BYTES_PER_SECOND`: the bytes that it had received by then, and the time.
        self._progress: dict[Address, tuple[int, float]] = {}
        # For each waiting call: the bytes that its connection had received before the call began.
        self._first_counts: dict[CancellableCall, int] = {}
        # The bytes that each connection had received when they were counted last.
        self._last_counts: dict[Address, int] = {}
        self._next_count_time = 0.0
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    @property
    def has_waiting_calls(self) -> bool:
        """Whether any call waits for its first message."""
        return bool(self._waits)

    def track(self, call: CancellableCall) -> str:
        """Add a call that waits for its first message; if there are too many, cancel the oldest.

        Returns:
          The name of the client, as in `peers.peer_name`.
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
        """Stop tracking a call whose first message has arrived, or that has ended without one."""
        with self._lock:
            self._remove(call)

    @contextmanager
    def tracking(self, call: CancellableCall) -> Iterator[None]:
        """Track a call while the body of a `with` statement waits for the call's first message."""
        self.track(call)
        try:
            yield
        finally:
            self.untrack(call)

    def calls_waiting_longer_than(self, seconds: float) -> list[CancellableCall]:
        """List the calls that have waited for their first message for more than the given time."""
        limit = self._clock() - seconds
        with self._lock:
            return [call for call, wait in self._waits.items() if wait.since < limit]

    def cancel_stalled(self) -> None:
        """Cancel the calls that have waited too long, or that keep too much in memory.

        Call this function every `_CHECK_INTERVAL_SECONDS`.
        """
        with self._lock:
            all_waits = dict(self._waits)
        limit = self._clock() - _CHECK_INTERVAL_SECONDS
        waits = {call: wait for call, wait in all_waits.items() if wait.since < limit}
        last_counts, counts = self._last_counts, self._count_received_bytes(bool(waits))
        self._note_first_counts(all_waits, last_counts)
        # Check the memory of all calls, also of those that have just begun: gRPC may already hold
        # much data of their messages.
        calls = {*self._find_stalled(waits, counts), *self._find_largest(all_waits, counts)}
        if calls:
            logger.warning(
                "%d calls are cancelled: their messages have not arrived in time", len(calls)
            )
        for call in calls:
            call.cancel()

    def _count_received_bytes(self, is_needed: bool) -> dict[Address, int]:
        """Return the bytes that each connection has received; count them now if `is_needed`.

        Otherwise return the last counts, and count anew only so rarely that counting takes at most
        a hundredth of the time.
        """
        now = self._clock()
        if is_needed or now >= self._next_count_time:
            started = time.monotonic()
            self._last_counts = self._limits.received_bytes()
            self._next_count_time = now + 100 * (time.monotonic() - started)
        return self._last_counts

    def _note_first_counts(
        self, waits: dict[CancellableCall, _Wait], last_counts: dict[Address, int]
    ) -> None:
        """Note the bytes that the connections of new calls had received before the calls began.

        Args:
          waits: all waiting calls.
          last_counts: the bytes that each connection had received at the last check, before the
            new calls began. A connection that is missing was opened since.
        """
        self._first_counts = {
            call: self._first_counts.get(call, last_counts.get(peers.split_peer(wait.peer), 0))
            for call, wait in waits.items()
        }

    def _find_stalled(
        self, waits: dict[CancellableCall, _Wait], counts: dict[Address, int]
    ) -> list[CancellableCall]:
        """List the calls that have waited too long, on connections that receive almost nothing."""
        now, timeout_seconds = self._clock(), self._limits.timeout_seconds
        last_progress, self._progress = self._progress, {}
        stalled = []
        for call, wait in waits.items():
            address = peers.split_peer(wait.peer)
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
        """List the calls to cancel, so that the others keep at most `max_pending_bytes` in memory.

        The calls of the connections that keep most in memory are listed first.
        """
        calls: dict[Address, list[CancellableCall]] = {}
        for call, wait in waits.items():
            calls.setdefault(peers.split_peer(wait.peer), []).append(call)
        pending = {
            address: counts.get(address, 0) - min(map(self._first_counts.__getitem__, of_address))
            for address, of_address in calls.items()
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
        """Start a thread that calls a function every second until `close`.

        Args:
          check: the function to call; None to call `cancel_stalled`.
        """

        def run() -> None:
            while not self._is_closed.wait(_CHECK_INTERVAL_SECONDS):
                (check or self.cancel_stalled)()

        threading.Thread(target=run, name="grpc-watch", daemon=True).start()

    def close(self) -> None:
        """End the thread that `start` has started."""
        self._is_closed.set()

    def _oldest(self, limit: int, peer_name: str | None = None) -> list[CancellableCall]:
        """List the calls to cancel when more than `limit` calls wait; the caller holds the lock.

        These are the oldest calls, `limit` / 8 of them, of the given client or of all clients.
        Cancelling several calls at once makes room for the next calls, which then need no search.
        """
        calls = (
            call
            for call, wait in self._waits.items()
            if peer_name is None or wait.peer_name == peer_name
        )
        return list(islice(calls, max(1, limit // 8)))

    def _remove(self, call: CancellableCall) -> None:
        """Remove a call that may have been removed before; the caller holds the lock."""
        wait = self._waits.pop(call, None)
        if wait is None:
            return
        self._num_waits[wait.peer_name] -= 1
        if not self._num_waits[wait.peer_name]:
            del self._num_waits[wait.peer_name]
