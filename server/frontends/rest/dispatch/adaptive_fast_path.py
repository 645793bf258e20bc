"""Answers small requests without a thread for each request, on a server with batching."""

from server.admission.latency_tracker import LatencyTracker
from server.admission.nonblocking import NonBlocking, WouldBlock
from server.frontends.rest.dispatch.workers import MAX_INLINE_BYTES
from server.frontends.rest.transport.headers import Headers, Peer
from server.frontends.rest.transport.responses import AnySyncResponse, SyncHandler

# When the event loop finds that a request needs a thread, it has parsed the request in vain. So
# this number of following requests run in threads from the start.
_REQUESTS_IN_THREADS = 64

_RUN, _WAIT = NonBlocking(), NonBlocking(may_run=False)


class AdaptiveFastPath:
    """Parses small requests in the event loop, and lets them wait for their batch without a thread.

    If the requests of a route are quick, the event loop also runs the model, for a request that
    need not wait for a batch.
    """

    def __init__(self, handler: SyncHandler, tracker: LatencyTracker) -> None:
        """Wrap a handler.

        Args:
          handler: Answers a request; raises WouldBlock if the request needs a thread, for example
            because it is not batched.
          tracker: Tells whether the requests of the route are quick.
        """
        self._handler = handler
        self._tracker = tracker
        self._requests_in_threads = 0

    def __call__(self, headers: Headers, body: bytes, peer: Peer) -> AnySyncResponse:
        """Return the response or its future; None if a thread must run the request."""
        if self._requests_in_threads:
            self._requests_in_threads -= 1
            return None
        try:
            may_run = self._tracker.is_quick and len(body) <= MAX_INLINE_BYTES
            with _RUN if may_run else _WAIT:
                return self._handler(headers, body, peer)
        except WouldBlock:
            self._requests_in_threads = _REQUESTS_IN_THREADS
            return None
