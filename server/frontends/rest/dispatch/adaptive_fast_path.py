"""Answers small requests in the event loop on a server with batching."""

from server.admission.latency_tracker import LatencyTracker
from server.admission.nonblocking import NonBlocking, WouldBlock
from server.frontends.rest.dispatch.workers import MAX_INLINE_BYTES
from server.frontends.rest.transport.headers import Headers, Peer
from server.frontends.rest.transport.responses import AnySyncResponse, SyncHandler

# If the event loop has parsed a request that then turns out to need a thread, this number of
# following requests go directly to threads: the event loop would probably parse them in vain, too.
_REQUESTS_IN_THREADS = 64

_RUN, _WAIT = NonBlocking(), NonBlocking(may_run=False)


class AdaptiveFastPath:
    """Wraps the handler of a route to run it in the event loop, on a server with batching.

    The handler parses a small request in the event loop. While the request waits for its batch, no
    thread waits. A request that need not wait for a batch runs the model at once: in the event loop
    if its body has at most `MAX_INLINE_BYTES` and the last requests of the route were quick, and
    otherwise in a thread.
    """

    def __init__(self, handler: SyncHandler, tracker: LatencyTracker) -> None:
        """Wrap a handler.

        Args:
          handler: Answers a request. Raises WouldBlock if the request would block the event loop,
            for example because its model has no batching.
          tracker: Tells whether the last requests of the route were quick.
        """
        self._handler = handler
        self._tracker = tracker
        self._requests_in_threads = 0

    def __call__(self, headers: Headers, body: bytes, peer: Peer) -> AnySyncResponse:
        """Answer a request in the event loop, if that does not block the loop.

        Args:
          headers: The headers of the request.
          body: The whole body of the request.
          peer: The address of the client.

        Returns:
          The response, or its future if the request waits for a batch. None if a thread must run
          the request.
        """
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
