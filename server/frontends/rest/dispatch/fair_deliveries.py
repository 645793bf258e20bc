"""Sends the responses of batches in the event loop: a few at a time, and the models in turn."""

import asyncio
import logging
import threading
from collections.abc import Callable

from server.scheduling.fair_queue import FairQueue

# After this number of responses in a row, the event loop reads new requests, such as health checks.
_MAX_IN_A_ROW = 8

logger = logging.getLogger(__name__)


class FairDeliveries:
    """Sends responses in an event loop, by calling the functions that are passed to `deliver`.

    When a large batch ends, hundreds of responses must be sent. Without this class, asyncio would
    send all of them before it reads another request.

    Attributes:
      loop: the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create an object that calls functions in the given event loop."""
        self.loop = loop
        self._waiting: FairQueue[Callable[[], object]] = FairQueue()
        # Whether `_deliver_some` will run again, and so will call the functions added until then.
        self._is_scheduled = False
        self._lock = threading.Lock()

    def deliver(self, model: str, function: Callable[[], object]) -> None:
        """Call a function in the event loop; at once if the calling thread runs the loop.

        Args:
          model: the name of the model whose turn the function takes.
          function: sends a response.
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
                # Log the error and go on, because the responses of other requests wait.
                logger.exception("a response cannot be sent")
        with self._lock:
            self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self.loop.call_soon(self._deliver_some)
