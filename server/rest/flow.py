"""When a connection is read: not before those requests have begun that were sent already."""

from collections.abc import Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl


class OrderlyFlow(FlowControl):
    """uvicorn's flow control, which reads on only once no request waits for its turn.

    By itself it reads on at the end of each: who sends many at a time, and takes no answer, would
    fill the memory with them.

    Attributes:
      is_over: whether nothing is read any more.
    """

    def __init__(self, transport: Any, waiting: Sized) -> None:
        """Takes a connection, and the requests on it that wait for their turn."""
        super().__init__(transport)
        self._waiting = waiting
        self.is_over = False

    def resume_reading(self) -> None:
        """Reads on, if it is time to."""
        if not self._waiting and not self.is_over:
            super().resume_reading()

    def end_reading(self) -> None:
        """Reads no more, from here on."""
        self.is_over = True
        self.pause_reading()
