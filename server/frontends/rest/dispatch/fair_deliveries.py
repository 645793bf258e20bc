"""Sends the responses of batches in the event loop: a few at a time, in turn for each model."""

import asyncio
import logging
import threading
from collections.abc import Callable

from server.scheduling.fair_queue import FairQueue

# After this number of responses in a row, the event loop gets the chance to read new requests, such
# as health checks.
_MAX_IN_A_ROW = 8

logger = logging.getLogger(__name__)


class FairDeliveries:
    """Calls functions that send responses in an event loop, a few at a time.

    When a large batch ends, hundreds of responses must be sent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: FairQueue[Callable[[], object]] = FairQueue()
        # Whether the event loop is about to call `_deliver_some`. If so, `deliver` does not
        # schedule the call again.
        self._is_scheduled = False
        self._lock = threading.Lock()

    def deliver(self, model: str, function: Callable[[], object]) -> None:
        """Call a function in the event loop: later, or at once if the current thread runs the loop.

        Args:
          model: the name of the model that computed the response. Functions of different models are
            called in turn.
          function: the function, which sends a response.
        """
        if asyncio._get_running_loop() is self.loop:
            function()
            return
        self._waiting.put(model, function)
        with self._lock:
            if self._is_scheduled:
                return
            self._is_scheduled = True
        self.loop.call_soon_threadsafe(self._deliver_some)

    def _deliver_some(self) -> None:
        for _ in range(_MAX_IN_A_ROW):
            function = self._waiting.pop()
            if function is None:
                break
            try:
                function()
            except Exception:
                # Log the error of this response, and continue with the responses of other requests.
                logger.exception("a response cannot be sent")
        with self._lock:
            self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self.loop.call_soon(self._deliver_some)
