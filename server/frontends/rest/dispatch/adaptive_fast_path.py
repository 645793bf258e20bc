"""Requests that may have to wait for others, answered at once where they need not."""

import math

from server.admission.nonblocking import NonBlocking, WouldBlock
from server.frontends.rest.dispatch.workers import LatencyTracker
from server.frontends.rest.transport.fast_path_protocol import SyncHandler
from server.frontends.rest.transport.responses import Headers, Peer, Response

# So many in a row that had to wait, and the path's are not quick. Fewer are left over by those
# that were handed to threads before.
_MOST_WAITS = 64

_HASTE = NonBlocking()


class AdaptiveFastPath:
    """Answers in the calling thread, which does not wait for others."""

    def __init__(self, answer: SyncHandler, pace: LatencyTracker) -> None:
        """Takes what answers, and whom to tell that it cannot."""
        self._answer = answer
        self._pace = pace
        self._waits = 0

    def __call__(self, headers: Headers, body: bytes, peer: Peer) -> Response | None:
        """The reply; None where the request has to wait."""
        try:
            with _HASTE:
                reply = self._answer(headers, body, peer)
        except WouldBlock:
            self._waits += 1
            if self._waits >= _MOST_WAITS:
                self._waits = 0
                self._pace.record(math.inf)
            return None
        self._waits = 0
        return reply
