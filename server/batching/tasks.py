"""Tasks (waiting requests), slices of tasks, and batches of slices."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from server.metrics.timeline import Timeline
from server.servables.servable import Array
from tpuserve.errors import DeadlineExceeded, TpuserveError

_TIMEOUT_MESSAGE = "Run() timeout exceeded while waiting in batching queue"


class BatchTask:
    """A request in a batching queue: its inputs, and finally its outputs or an error.

    Attributes:
      inputs: alias → [size, ...].
      size: the number of rows.
      enqueued: when the request arrived, in seconds of the scheduler's clock.
      deadline: when the request times out, in seconds of the same clock; None for no deadline.
      is_done: whether the request has its outputs or an error.
      timeline: the times of the request.
    """

    __slots__ = (
        "_callbacks",
        "_done_lock",
        "_error",
        "_lock",
        "_parts",
        "_rows_left",
        "deadline",
        "enqueued",
        "inputs",
        "is_done",
        "size",
        "timeline",
    )

    def __init__(
        self,
        inputs: Mapping[str, Array],
        size: int,
        enqueued: float,
        deadline: float | None,
        timeline: Timeline | None = None,
    ) -> None:
        """Create a task that is not done."""
        self.timeline = Timeline() if timeline is None else timeline
        self.inputs = inputs
        self.size = size
        self.enqueued = enqueued
        self.deadline = deadline
        self._rows_left = size
        self._parts: dict[int, Mapping[str, Array]] = {}
        self._error: TpuserveError | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self.is_done = False
        # This lock is held until the task is done; to wait for the task, a thread acquires the
        # lock. At most one thread waits, so a lock suffices. An Event costs several times as much.
        self._done_lock = threading.Lock()
        self._done_lock.acquire()

    def deadline_exceeded(self, now: float) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and now >= self.deadline

    def fail(self, error: TpuserveError) -> None:
        """End the task with an error, unless the task is done."""
        with self._lock:
            if self.is_done:
                return
            self._error = error
            self._finish()
        self._call_back()

    def fail_deadline(self) -> None:
        """End the task because its deadline has passed."""
        self.fail(DeadlineExceeded(_TIMEOUT_MESSAGE))

    def add_part(self, start: int, size: int, outputs: Mapping[str, Array]) -> None:
        """Record the outputs of `size` rows from row `start` on.

        The task is done once all of its rows have outputs.
        """
        with self._lock:
            self._parts[start] = outputs
            self._rows_left -= size
            if self._rows_left > 0 or self.is_done:
                return
            self.timeline.end_run()
            self._finish()
        self._call_back()

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call a function, in any thread, as soon as the task is done; at once if it is done now.

        The function must not block and must not raise.
        """
        with self._lock:
            if not self.is_done:
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, now: float) -> dict[str, Array]:
        """Wait for the outputs until the deadline.

        Args:
          now: the time in seconds of the scheduler's clock.

        Returns:
          Alias → [size, ...].

        Raises:
          DeadlineExceeded: the deadline passed first.
          TpuserveError: the error that ended the task.
        """
        if not self.is_done:
            timeout = -1 if self.deadline is None else max(0, self.deadline - now)
            if not self._done_lock.acquire(timeout=timeout):
                self.fail_deadline()
        if self._error is not None:
            # Raise a new exception: the tasks of a batch share one error, and the traceback of a
            # shared exception would grow with each thread that raises it.
            raise type(self._error)(*self._error.args) from self._error
        parts = [self._parts[start] for start in sorted(self._parts)]
        if len(parts) == 1:
            return dict(parts[0])
        return {alias: np.concatenate([part[alias] for part in parts]) for alias in parts[0]}

    def _finish(self) -> None:
        self.is_done = True
        self._done_lock.release()

    def _call_back(self) -> None:
        """Call the callbacks; no other thread adds one meanwhile, because the task is done."""
        for callback in self._callbacks:
            callback()
        self._callbacks.clear()


@dataclass(frozen=True)
class TaskSlice:
    """Consecutive rows of a task that run in one batch; all rows of a task that is not split."""

    task: BatchTask
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of rows of the slice."""
        return self.stop - self.start

    @property
    def inputs(self) -> Mapping[str, Array]:
        """Alias → [size, ...], the rows of the slice."""
        if self.size == self.task.size:
            return self.task.inputs
        return {alias: array[self.start : self.stop] for alias, array in self.task.inputs.items()}

    def succeed(self, outputs: Mapping[str, Array]) -> None:
        """Pass the outputs of the slice's rows to the task."""
        self.task.add_part(self.start, self.size, outputs)


class AloneReason(Enum):
    """Why a request ran alone instead of in a batch with others; the values appear in metrics."""

    IDLE = "idle_server"
    """No other request ran or waited."""
    FREE_RUN = "run_was_free"
    """Other batches ran, but one more was allowed to run, and no other request waited."""
    ONLY_ONE = "only_one_waited"
    """No other request for the same signature and outputs waited when the batch was formed."""
    FULL = "next_did_not_fit"
    """The next request would have made the batch larger than allowed."""
    DIFFERENT_SHAPES = "different_shapes"
    """The inputs of the other requests have other types or shapes, and cannot be concatenated."""
    AFTER_ERROR = "repeated_after_error"
    """The model refused the batch of the request, so each request was run again by itself."""
    NOT_BATCHABLE = "signature_not_batchable"
    """The signature is served without batching."""


@dataclass
class Batch:
    """Slices of tasks that run together.

    Attributes:
      slices: the slices.
      alone_reason: why the batch has one slice, if it has only one.
    """

    slices: tuple[TaskSlice, ...]
    alone_reason: AloneReason = AloneReason.ONLY_ONE

    @property
    def size(self) -> int:
        """The number of rows of the batch."""
        return sum(task_slice.size for task_slice in self.slices)
