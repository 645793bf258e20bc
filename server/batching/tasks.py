"""A request that waits for a batch, the pieces it is run in, and batches of those."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from server.servables.servable import Array
from tpuserve.errors import DeadlineExceeded, TpuserveError

_TOO_LATE = "Run() timeout exceeded while waiting in batching queue"


class Task:
    """One request: its inputs, and in the end its outputs or an error.

    Attributes:
      inputs: alias → [size, ...].
      size: in rows.
      enqueued: when it came, in seconds of the batcher's clock.
      deadline: when it need not be answered any more, of the same clock; None for never.
      is_done: whether nobody waits for it any more.
    """

    __slots__ = ("_end", "_error", "_left", "_lock", "_parts", "deadline", "enqueued", "inputs",
                 "is_done", "size")  # fmt: skip

    def __init__(
        self, inputs: Mapping[str, Array], size: int, enqueued: float, deadline: float | None
    ) -> None:
        """Takes what to run."""
        self.inputs = inputs
        self.size = size
        self.enqueued = enqueued
        self.deadline = deadline
        self._left = size
        self._parts: dict[int, Mapping[str, Array]] = {}
        self._error: TpuserveError | None = None
        self._lock = threading.Lock()
        self.is_done = False
        # Held until it is done. One waits for it at most, and an Event costs several times as much.
        self._end = threading.Lock()
        self._end.acquire()

    def is_too_late(self, now: float) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and now >= self.deadline

    def fail(self, error: TpuserveError) -> None:
        """Ends it with an error, unless it has ended before."""
        with self._lock:
            if not self.is_done:
                self._error = error
                self._finish()

    def fail_too_late(self) -> None:
        """Ends it because its deadline has passed."""
        self.fail(DeadlineExceeded(_TOO_LATE))

    def add_part(self, start: int, size: int, outputs: Mapping[str, Array]) -> None:
        """Takes the outputs of so many of its rows; the last ones end it."""
        with self._lock:
            self._parts[start] = outputs
            self._left -= size
            if self._left <= 0 and not self.is_done:
                self._finish()

    def wait(self, now: float) -> dict[str, Array]:
        """Its outputs, waited for until the deadline.

        Raises:
          DeadlineExceeded: they are not there by then.
          TpuserveError: whatever it was ended with.
        """
        if not self.is_done:
            left = -1 if self.deadline is None else max(0, self.deadline - now)
            if not self._end.acquire(timeout=left):
                self.fail_too_late()
        if self._error is not None:
            # Of its own, since a traceback grows with each thread that raises one and the same.
            raise type(self._error)(*self._error.args) from self._error
        parts = [self._parts[start] for start in sorted(self._parts)]
        if len(parts) == 1:
            return dict(parts[0])
        return {alias: np.concatenate([part[alias] for part in parts]) for alias in parts[0]}

    def _finish(self) -> None:
        self.is_done = True
        self._end.release()


@dataclass(frozen=True)
class Piece:
    """Some rows of a task: all of them, where it is not split."""

    task: Task
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Its number of rows."""
        return self.stop - self.start

    @property
    def inputs(self) -> Mapping[str, Array]:
        """Alias → its rows."""
        if self.size == self.task.size:
            return self.task.inputs
        return {alias: array[self.start : self.stop] for alias, array in self.task.inputs.items()}

    def succeed(self, outputs: Mapping[str, Array]) -> None:
        """Hands the outputs of its rows to the task."""
        self.task.add_part(self.start, self.size, outputs)


@dataclass(frozen=True)
class Batch:
    """Pieces to run together."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Its number of rows."""
        return sum(piece.size for piece in self.pieces)
