"""The batching policy "continuous": when a batch has run, all waiting requests form the next."""

from collections import deque
from itertools import takewhile

from server.batching.policy import check_size
from server.batching.tasks import AloneReason, Batch, BatchTask, TaskSlice
from server.config.batching_parameters import BatchingParameters
from tpuserve.errors import QueueFull

# After a batch of several requests, the next batch waits for further requests of the same clients,
# so that these requests run together and not one by one. The longest wait is _MAX_RETURN_SHARE
# times the duration of the last run, but at most _MAX_RETURN_SECONDS.
_MAX_RETURN_SHARE = 0.25
_MAX_RETURN_SECONDS = 0.001


class ReturningClients:
    """Predicts the next requests of the clients whose requests ran in the last batch.

    These clients often send their next requests as soon as they have their responses. So
    `ContinuousPolicy` delays the next batch until the waiting requests have `rows` rows (examples)
    in total, or until the time `until`. Without this delay, the first of the expected requests
    would run alone, and all others would wait until its run ends.

    All batching queues of a model version share one ReturningClients object. The object cannot
    belong to a single queue, because a queue exists only while requests wait in it.

    Attributes:
      rows: the total number of rows (examples) of the expected requests.
      until: the time until which the requests are expected, in seconds of the scheduler's clock.
    """

    __slots__ = ("rows", "until")

    def __init__(self) -> None:
        """Expect no request at first."""
        self.rows, self.until = 0, 0.0

    def run_ended(self, requests: int, rows: int, began: float, ended: float) -> None:
        """Record that a batch has run, and expect further requests of its clients.

        A batch of a single request is ignored.

        Args:
          requests: the number of requests in the batch.
          rows: the number of rows of the batch.
          began: when the run began, in seconds of the scheduler's clock.
          ended: when the run ended, in seconds of the same clock.
        """
        if requests > 1:
            seconds = min(_MAX_RETURN_SHARE * (ended - began), _MAX_RETURN_SECONDS)
            self.rows, self.until = rows, ended + seconds


class ContinuousPolicy:
    """Forms a batch of all waiting tasks, up to the largest size, in the order of their arrival.

    Batches grow with the load, because more requests arrive while a batch runs. A task (a waiting
    request) waits for further tasks only right after a batch of several requests, whose clients are
    likely to send their next requests soon. The queue holds at most as many rows (examples) as
    `max_enqueued_batches` batches of the largest size, so that `max_enqueued_batches` runs can
    answer all waiting tasks.
    """

    def __init__(
        self, parameters: BatchingParameters, returning: ReturningClients | None = None
    ) -> None:
        """Create an empty queue.

        Args:
          parameters: the batching parameters: the allowed batch sizes and `max_enqueued_batches`.
          returning: predicts the next requests of the clients of the last batch. The next batch
            waits for these requests. None if batches never wait for such requests.
        """
        self._returning = ReturningClients() if returning is None else returning
        self._parameters = parameters
        self._max_rows = parameters.max_enqueued_batches * parameters.largest_batch
        self._slices: deque[TaskSlice] = deque()
        self._rows = 0

    @property
    def waiting(self) -> int:
        """The number of waiting tasks. A task that is split into several slices counts once."""
        return sum(part.is_last for part in self._slices)

    def add(self, task: BatchTask, now: float) -> None:
        """Enqueue a task; a task that is larger than a batch is split into several slices.

        Raises:
          BatchTooLarge: the task has more rows (examples) than any batch may have.
          QueueFull: the queue would hold more rows than `max_enqueued_batches` batches.
        """
        check_size(task, self._parameters.max_batch_size)
        if self._slices and self._rows + task.size > self._max_rows:
            raise QueueFull(
                f"The batch scheduling queue to which this task was submitted is full; currently "
                f"{self._rows} rows enqueued and max_enqueued_batches is "
                f"{self._parameters.max_enqueued_batches} batches of "
                f"{self._parameters.largest_batch} rows"
            )
        largest = self._parameters.largest_batch
        for start in range(0, max(task.size, 1), largest):
            self._slices.append(TaskSlice(task, start, min(start + largest, task.size)))
        self._rows += task.size

    def take(self, now: float) -> Batch | None:
        """Dequeue the next batch.

        The result is None if no task waits, or if the batch must wait for more tasks.
        """
        if not self._slices or now < self._ready_time():
            return None
        max_rows = self._choose_size()
        first = self._slices.popleft()
        slices, size = [first], first.size
        while self._slices and size + self._slices[0].size <= max_rows:
            slices.append(self._slices.popleft())
            size += slices[-1].size
        self._rows -= size
        return Batch(tuple(slices), AloneReason.FULL if self._slices else AloneReason.ONLY_ONE)

    def next_time(self) -> float | None:
        """Return the earliest time at which `take` returns a batch if no further task arrives.

        The time is in seconds of the scheduler's clock. 0 means now. None means that no task waits.
        """
        return self._ready_time() if self._slices else None

    def remove(self, task: BatchTask) -> None:
        """Dequeue all waiting slices of a task."""
        removed = [task_slice for task_slice in self._slices if task_slice.task is task]
        for task_slice in removed:
            self._slices.remove(task_slice)
            self._rows -= task_slice.size

    def _ready_time(self) -> float:
        """Return the earliest time at which the waiting tasks may run.

        The time is in seconds of the scheduler's clock; 0 means now. At least one task must wait.
        """
        if self._rows >= self._returning.rows:
            return 0
        # Limit the wait of the oldest task. `self._returning.until` alone is no limit: all queues
        # of the version share `self._returning`, and batches of other queues can set later times.
        latest = self._slices[0].task.enqueued + _MAX_RETURN_SECONDS
        return min(self._returning.until, latest)

    def _choose_size(self) -> int:
        """Return the largest number of rows (examples) that the next batch may take from the queue.

        If the number of waiting rows is no allowed batch size, the batch either takes all of them
        and is padded to the next larger size, or takes the next smaller size and leaves the rest to
        the following batch. The method compares the rows of padding with the rows that would be
        left, and chooses the smaller number.
        """
        largest = self._parameters.largest_batch
        rows = min(self._rows, largest)
        padding = self._parameters.padded_size(rows) - rows
        smaller = list(takewhile(lambda size: size < rows, self._parameters.allowed_batch_sizes))
        if smaller and padding > rows - smaller[-1]:
            return smaller[-1]
        return largest
