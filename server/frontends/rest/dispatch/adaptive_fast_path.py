"""The fast path while batching is on: runs a request in the event loop if it need not wait."""

import math

from server.admission.nonblocking import NonBlocking, WouldBlock
from server.frontends.rest.dispatch.workers import LatencyTracker
from server.frontends.rest.transport.headers import Headers, Peer
from server.frontends.rest.transport.responses import Response, SyncHandler

# After this number of requests in a row that would have blocked, the route counts as slow, and its
# requests run in threads. The number is high, because even requests to a quick route would block
# while the thread pool finishes earlier requests.
_MAX_BLOCKED_IN_A_ROW = 64

_NON_BLOCKING = NonBlocking()


class AdaptiveFastPath:
    """Answers requests in the event loop, except for requests that would block the loop."""

    def __init__(self, handler: SyncHandler, tracker: LatencyTracker) -> None:
        """Wrap a handler.

        Args:
          handler: Raises WouldBlock if it would block.
          tracker: Decides whether the handler's route is quick enough for the event loop. Receives
            an infinite latency, which marks the route as slow, if the handler would block often.
        """
        self._handler = handler
        self._tracker = tracker
        self._blocked_in_a_row = 0

    def __call__(self, headers: Headers, body: bytes, peer: Peer) -> Response | None:
        """Return the response; None if the handler would block, so that a thread must run it."""
        try:
            with _NON_BLOCKING:
                response = self._handler(headers, body, peer)
        except WouldBlock:
            self._blocked_in_a_row += 1
            if self._blocked_in_a_row >= _MAX_BLOCKED_IN_A_ROW:
                self._blocked_in_a_row = 0
                self._tracker.record(math.inf)
            return None
        self._blocked_in_a_row = 0
        return response
