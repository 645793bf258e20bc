"""The contents of batching queues: tasks (waiting requests), slices of tasks, and batches.

A row is one of the examples in a request: one index of the first dimension of all inputs.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from server.request import RequestContext
from server.servables import pending
from server.servables.servable import Array
from tpuserve.errors import TpuserveError


class BatchTask:
    """A request in a batching queue: its inputs, and later its outputs or an error.

    Attributes:
      enqueued: when the request arrived, in seconds of the scheduler's clock.
    """

    __slots__ = (
        "_callbacks",
        "_done_lock",
        "_error",
        "_lock",
        "_parts",
        "_rows_left",
        "context",
        "enqueued",
        "inputs",
        "is_done",
        "size",
    )

    def __init__(
        self,
        inputs: Mapping[str, Array],
        size: int,
        enqueued: float,
        context: RequestContext,
    ) -> None:
        self.context = context
        self.inputs = inputs
        self.size = size
        self.enqueued = enqueued
        self._rows_left = size
        self._parts: dict[int, Mapping[str, Array]] = {}
        self._error: TpuserveError | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self.is_done = False
        # This lock stays acquired until the task (a request) is done: a thread waits for the end of
        # the task by acquiring the lock.
        self._done_lock = threading.Lock()
        self._done_lock.acquire()

    def fail(self, error: TpuserveError) -> None:
        """End the task with an error, unless it already has its outputs or an error."""
        with self._lock:
            if self.is_done:
                return
            self._error = error
            self._finish()
        self._call_back()

    def check(self) -> bool:
        """Fail the task if nobody waits for its outputs; return whether it still waits for them."""
        try:
            self.context.check()
        except TpuserveError as error:
            self.fail(error)
        return not self.is_done

    def add_part(self, start: int, size: int, outputs: Mapping[str, Array]) -> None:
        """Record the outputs of some rows of the task, which one batch has computed.

        The task is done when all of its rows have outputs.
        """
        with self._lock:
            self._parts[start] = outputs
            self._rows_left -= size
            if self._rows_left > 0 or self.is_done:
                return
            self.context.timeline.end_run()
            self._finish()
        self._call_back()

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call a function as soon as the task is done; at once if the task is done already.

        The thread that ends the task calls the function, which must not block and must not raise.
        """
        with self._lock:
            if not self.is_done:
                self._callbacks.append(callback)
                return
        callback()

    def count_values(self) -> int:
        """Return about how many values the outputs have; 0 if there are no outputs.

        The task must be done.
        """
        if self._error is not None:
            return 0
        return sum(pending.count_values(part.values()) for part in self._parts.values())

    def wait(self) -> dict[str, Array]:
        """Wait for the outputs, and return them: output alias → [size, ...]."""
        if not self.is_done:
            self._done_lock.acquire()
        if self._error is not None:
            # Raise a new exception, because all tasks of a batch have the same exception object.
            # The traceback of a single object would grow with each thread that raises it.
            raise type(self._error)(*self._error.args) from self._error
        parts = [self._parts[start] for start in sorted(self._parts)]
        if len(parts) == 1:
            return dict(parts[0])
        return {alias: np.concatenate([part[alias] for part in parts]) for alias in parts[0]}

    def _finish(self) -> None:
        self.is_done = True
        self._done_lock.release()

    def _call_back(self) -> None:
        for callback in self._callbacks:
            callback()
        self._callbacks.clear()


@dataclass(frozen=True)
class TaskSlice:
    """Consecutive rows (examples) of a task that run in one batch.

    A task with more rows than a batch may have is split into several slices; any other task is one
    slice.
    """

    task: BatchTask
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of rows (examples) of the slice."""
        return self.stop - self.start

    @property
    def is_last(self) -> bool:
        """Whether the slice ends with the last row (example) of its task."""
        return self.stop == self.task.size

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The inputs of the slice's rows: input alias → [size, ...]."""
        if self.size == self.task.size:
            return self.task.inputs
        return {alias: array[self.start : self.stop] for alias, array in self.task.inputs.items()}

    def succeed(self, outputs: Mapping[str, Array]) -> None:
        """Pass the outputs of the slice's rows to the task: output alias → [size, ...]."""
        self.task.add_part(self.start, self.size, outputs)


class AloneReason(Enum):
    """Why a request ran alone, and not in a batch with other requests.

    The values are label values of the metrics.
    """

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
    """Slices of tasks (requests) that one run of the model computes together."""

    slices: tuple[TaskSlice, ...]
    alone_reason: AloneReason = AloneReason.ONLY_ONE

    @property
    def size(self) -> int:
        """The number of rows (examples) of all slices together, without padding."""
        return sum(task_slice.size for task_slice in self.slices)
