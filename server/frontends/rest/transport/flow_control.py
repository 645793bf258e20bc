"""Decides when the server reads the next bytes from a connection."""

from collections.abc import Callable
from typing import Any

from server.frontends.rest.transport.uvicorn_compat import FlowControl


class BackpressureFlowControl(FlowControl):  # type: ignore[misc]
    """Flow control that stops reading from a connection while a request is being answered.

    uvicorn's own flow control continues to read. Then a client that sends many requests and reads
    no response could fill the memory.

    Args:
      may_read: Returns whether the server may read data now. The result is False while a
        complete request waits for its response.
    """

    def __init__(self, transport: Any, may_read: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._may_read = may_read
        self.has_ended = False

    def resume_reading(self) -> None:
        """Resume reading if `may_read` permits it and `end_reading` was not called."""
        if not self.has_ended and self._may_read():
            super().resume_reading()

    def end_reading(self) -> None:
        """Stop reading, and never resume: later calls of `resume_reading` have no effect."""
        self.has_ended = True
        self.pause_reading()
