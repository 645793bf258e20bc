"""When a connection is read: not while a request that has come whole waits for its answer."""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl


class BackpressureFlowControl(FlowControl):
    """uvicorn's flow control, which reads on only once no whole request is left to answer.

    By itself it reads on at the end of each: who sends many at a time, and takes no answer, would
    fill the memory with them. And it reads on while one is answered: whoever has said meanwhile
    that there is no more to come would be hung up on.

    Attributes:
      is_over: whether nothing is read any more.
    """

    def __init__(self, transport: Any, is_time: Callable[[], bool]) -> None:
        """Takes a connection, and what tells whether to read on."""
        super().__init__(transport)
        self._is_time = is_time
        self.is_over = False

    def resume_reading(self) -> None:
        """Reads on, if it is time to."""
        if not self.is_over and self._is_time():
            super().resume_reading()

    def end_reading(self) -> None:
        """Reads no more, from here on."""
        self.is_over = True
        self.pause_reading()
