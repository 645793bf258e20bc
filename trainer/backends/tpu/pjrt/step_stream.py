"""The batches and results of a session that runs steps on PJRT devices, between its threads."""

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

# The time, in seconds, after which a waiting thread looks whether the queue has ended.
_POLL_SECS = 0.1


class StepQueue:
    """A queue from one thread to another, which either can end.

    Attributes:
      is_ended: whether a wait for room or for an item fails with tf.errors.OutOfRangeError.
    """

    def __init__(self, capacity: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(capacity)
        self.is_ended = self.is_closed = False

    def put(self, item: Any) -> None:
        """Add an item; wait until there is room for it."""
        self._wait(lambda: self._queue.put(item, timeout=_POLL_SECS))

    def get(self) -> Any:
        """Remove the oldest item and return it; wait until there is one."""
        return self._wait(lambda: self._queue.get(timeout=_POLL_SECS))

    def _wait(self, call: Callable[[], Any]) -> Any:
        while not self.is_closed:
            try:
                return call()
            except (queue.Full, queue.Empty):
                if self.is_ended:
                    raise tf.errors.OutOfRangeError(None, None, "the steps have ended") from None
        raise tf.errors.CancelledError(None, None, "the session is closed")


@dataclass
class Batches:
    """The batches of several steps, read from the input of this host.

    Attributes:
      steps: for each step the tensors of each replica of this host; empty after the copy to the
        devices.
      end: the error that ended the input before `capacity` steps, or None.
      sizes: the largest sizes of the dimensions in `ReplicaStep.unknown_sizes`.
      on_devices: the batches on the devices; empty before the copy.
    """

    capacity: int = 0
    steps: list[Any] = field(default_factory=list)
    end: Exception | None = None
    count: int = 0
    sizes: list[int] = field(default_factory=list)
    on_devices: list[Any] = field(default_factory=list)
    first: int = 0


@dataclass
class StepStream:
    """What is on its way between the threads of one session.

    Attributes:
      results: for the outfeed thread, the tensors that all replicas have sent in a step: those of
        the first replica, then those of the second, and so on.
    """

    batches: StepQueue = field(default_factory=lambda: StepQueue(1))
    results: StepQueue = field(default_factory=lambda: StepQueue(2))
    current: Batches = field(default_factory=Batches)
    num_ahead: int = 0
