"""What is known of one request, to who answers it and to who keeps the books."""

from collections.abc import Callable
from typing import TypeAlias

from server.dataplane import ModelSpec

_NOBODY = ModelSpec("")


class CallContext:
    """One request.

    Attributes:
      timeout_ms: how long it may take; None for as long as it takes.
      target: what it is addressed to, once whoever answers has read as far.
      version: that has answered.
    """

    __slots__ = ("target", "timeout_ms", "version")

    def __init__(self, timeout_ms: float | None = None) -> None:
        """Makes one of which nothing is read yet."""
        self.timeout_ms = timeout_ms
        self.target = _NOBODY
        self.version: int | None = None


Answer: TypeAlias = Callable[[bytes, CallContext], bytes]
"""A message's bytes, and the request to note down what they say → the reply's bytes."""
