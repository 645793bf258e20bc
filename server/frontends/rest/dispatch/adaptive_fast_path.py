"""The fast path of batched requests: used as long as they do not block the event loop."""

import math

from server.admission.nonblocking import NonBlocking, WouldBlock
from server.frontends.rest.dispatch.workers import LatencyTracker
from server.frontends.rest.transport.headers import Headers, Peer
from server.frontends.rest.transport.responses import Response, SyncHandler

# After this number of requests in a row that would have blocked, the route counts as slow. While
# the thread pool finishes earlier requests, fewer requests than this would block.
_MAX_BLOCKED_IN_A_ROW = 64

_NON_BLOCKING = NonBlocking()


class AdaptiveFastPath:
    """Calls a synchronous handler in the event loop, where the handler must not block."""

    def __init__(self, handler: SyncHandler, tracker: LatencyTracker) -> None:
        """Wrap a handler.

        Args:
          handler: Raises WouldBlock if it would block.
          tracker: The latencies of the route. The route counts as slow if the handler often would
            block.
        """
        self._handler = handler
        self._tracker = tracker
        self._blocked_in_a_row = 0

    def __call__(self, headers: Headers, body: bytes, peer: Peer) -> Response | None:
        """Return the response, or None if the handler would block."""
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
