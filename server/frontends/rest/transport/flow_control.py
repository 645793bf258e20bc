"""Decides when to read from a connection."""

from collections.abc import Callable
from typing import Any

from server.frontends.rest.transport.uvicorn_compat import FlowControl


class BackpressureFlowControl(FlowControl):  # type: ignore[misc]
    """uvicorn's flow control, without reading while a complete request waits for its answer.

    uvicorn reads on at the end of each request. So a client that sends many requests and reads no
    response would fill the memory. uvicorn also reads on while a request is answered. So it would
    close the connection of a client that has closed only its sending side.

    Attributes:
      has_ended: Whether reading has stopped for good.
    """

    def __init__(self, transport: Any, may_read: Callable[[], bool]) -> None:
        """Create the flow control of a connection.

        Args:
          transport: The asyncio transport of the connection.
          may_read: Returns whether the next request may be read.
        """
        super().__init__(transport)
        self._may_read = may_read
        self.has_ended = False

    def resume_reading(self) -> None:
        """Resume reading if the next request may be read."""
        if not self.has_ended and self._may_read():
            super().resume_reading()

    def end_reading(self) -> None:
        """Stop reading for good."""
        self.has_ended = True
        self.pause_reading()
