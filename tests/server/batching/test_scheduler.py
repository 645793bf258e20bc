"""The queues share the threads in turns, and every enqueued task runs."""

import math
import threading
import time

import pytest

from server.batching.policy import TimeoutPolicy
from server.batching.scheduler import BatchingQueue, RunBatch, Scheduler
from server.batching.tasks import AloneReason, Batch, BatchTask
from server.config.batching_parameters import BatchingParameters
from tests.server import contexts
from tests.server.batching.waiting_policy import WaitingTasksPolicy
from tests.threads import no_new_threads
from tpuserve.errors import Unavailable


class Clock:
    now = 0.0
    num_readings = 0

    def __call__(self) -> float:
        self.num_readings += 1
        return self.now


def ignore(batch: Batch) -> None:
    pass


def make_timeout_queue(seconds: float = 0.1, run: RunBatch = ignore) -> BatchingQueue:
    parameters = BatchingParameters(max_batch_size=2, batch_timeout_micros=round(seconds * 1e6))
    return BatchingQueue(TimeoutPolicy(parameters), run)


def task(size: int = 1) -> BatchTask:
    return BatchTask({}, size, 0, contexts.make_context())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduler(clock: Clock) -> Scheduler:
    return Scheduler(0, "batch", clock)


def test_batches_come_from_one_queue_after_the_other(scheduler: Scheduler) -> None:
    for key in "aaab":
        scheduler.submit(key, make_timeout_queue, task(2))
    order = []
    for _ in range(4):
        work = scheduler.take(0)
        assert work is not None
        order.append(scheduler.waiting)
    assert scheduler.take(0) is None
    assert order == [3, 2, 1, 0]


def test_a_queue_moves_to_the_end_after_its_turn(scheduler: Scheduler) -> None:
    keys: list[str] = []
    for key in "aab":
        queue = make_timeout_queue(run=lambda batch, key=key: keys.append(key))  # type: ignore[misc]
        scheduler.submit(key, lambda queue=queue: queue, task(2))  # type: ignore[misc]
    for _ in range(3):
        work = scheduler.take(0)
        assert work is not None
        run, batch = work
        run(batch)
    assert keys == ["a", "b", "a"]


def test_next_time_is_that_of_the_earliest_queue(scheduler: Scheduler, clock: Clock) -> None:
    assert scheduler.next_time() is None
    scheduler.submit("a", lambda: make_timeout_queue(0.5), task())
    clock.now = 0.25
    scheduler.submit("b", lambda: make_timeout_queue(0.125), task())
    assert scheduler.next_time() == 0.375
    assert scheduler.take(0.37) is None
    assert scheduler.take(0.375) is not None
    assert scheduler.next_time() == 0.5


def test_an_empty_queue_is_removed(scheduler: Scheduler) -> None:
    queues: list[BatchingQueue] = []

    def make() -> BatchingQueue:
        queues.append(make_timeout_queue(0))
        return queues[-1]

    for _ in range(2):
        scheduler.submit("a", make, task())
        scheduler.take(0)
    assert len(queues) == 2


def test_a_removed_task_leaves_the_other_tasks_of_its_queue(scheduler: Scheduler) -> None:
    queue = BatchingQueue(WaitingTasksPolicy(BatchingParameters()), ignore)
    first = task(1)
    for added in (first, task(2)):
        scheduler.submit("a", lambda: queue, added)
    scheduler.remove("a", first)
    work = scheduler.take(0)
    assert work is not None
    assert work[1].size == 2


def test_a_new_policy_is_one_class(scheduler: Scheduler) -> None:
    queue = BatchingQueue(WaitingTasksPolicy(BatchingParameters()), ignore)
    for size in (1, 5, 2):
        scheduler.submit("a", lambda: queue, task(size))
    work = scheduler.take(0)
    assert work is not None
    assert work[1].size == 8


def test_threads_run_batches_and_end() -> None:
    ran: list[int] = []
    scheduler = Scheduler(2, "batch-test")
    for _ in range(20):
        scheduler.submit(
            "a", lambda: make_timeout_queue(60, lambda batch: ran.append(batch.size)), task()
        )
    scheduler.close()
    assert sum(ran) == 20
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batch-test")]


def test_thread_goes_on_after_a_batch_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler(1, "batch-test")
    has_run = threading.Event()

    def fail(batch: Batch) -> None:
        raise RuntimeError("a fault that nobody has foreseen")

    scheduler.submit("a", lambda: make_timeout_queue(0, fail), task())
    scheduler.submit("b", lambda: make_timeout_queue(0, lambda batch: has_run.set()), task())
    assert has_run.wait(10)
    scheduler.close()
    assert "a batch failed" in caplog.text
    assert "a fault that nobody has foreseen" in caplog.text


def test_thread_that_takes_a_due_batch_wakes_another_for_the_next() -> None:
    scheduler = Scheduler(2, "batch-test")
    both_run = threading.Barrier(2)
    ended = threading.Semaphore(0)

    def meet(batch: Batch) -> None:
        both_run.wait(10)
        ended.release()

    # One thread sleeps until the batch of "a" is due, and no thread until the batch of "b" is due.
    # Repeat the submissions, because only from the second round on both threads sleep at the
    # beginning.
    for _ in range(3):
        for key in "ab":
            scheduler.submit(key, lambda: make_timeout_queue(0.05, meet), task())
        assert ended.acquire(timeout=10)
        assert ended.acquire(timeout=10)
    scheduler.close()


def test_batch_stays_open_while_every_thread_is_busy() -> None:
    scheduler = Scheduler(1, "batch")
    started, gate, sizes, is_done = threading.Event(), threading.Event(), [], threading.Event()

    def run(batch: Batch) -> None:
        sizes.append(batch.size)
        if len(sizes) == 1:
            started.set()
            assert gate.wait(30)
        else:
            is_done.set()

    scheduler.submit("busy", lambda: make_timeout_queue(0, run), task(1))
    assert started.wait(30)
    for _ in range(2):
        # If the batch were handed to a thread already, it could not take the second task.
        scheduler.submit("later", lambda: make_timeout_queue(0, run), task(1))
    gate.set()
    assert is_done.wait(30)
    scheduler.close()
    assert sizes == [1, 2]


def test_threads_do_not_keep_the_process_from_ending() -> None:
    scheduler = Scheduler(1, "batch-test")
    scheduler.submit("a", lambda: make_timeout_queue(60), task())
    (thread,) = [thread for thread in threading.enumerate() if thread.name.startswith("batch-test")]
    assert thread.daemon
    scheduler.close()


def test_a_closed_scheduler_runs_waiting_tasks_before_its_threads_end() -> None:
    scheduler = Scheduler(1, "batch-test")
    gate, entered, has_run = threading.Event(), threading.Event(), threading.Event()

    def block(batch: Batch) -> None:
        entered.set()
        assert gate.wait(10)

    scheduler.submit("block", lambda: make_timeout_queue(0, block), task())
    assert entered.wait(10)
    scheduler.submit("open", lambda: make_timeout_queue(60, lambda batch: has_run.set()), task())
    scheduler.close(timeout_seconds=0)
    gate.set()
    assert has_run.wait(10)


def test_open_batch_is_run_in_time_while_another_runs() -> None:
    # The thread that should wake up for the open batch may get another batch to run before.
    scheduler = Scheduler(2, "batch-test")
    gate, entered, has_run = threading.Event(), threading.Event(), threading.Event()

    def block(batch: Batch) -> None:
        entered.set()
        assert gate.wait(10)

    scheduler.submit("open", lambda: make_timeout_queue(0.02, lambda batch: has_run.set()), task())
    scheduler.submit("block", lambda: make_timeout_queue(0, block), task())
    assert entered.wait(10)
    assert has_run.wait(10)
    gate.set()
    scheduler.close()


def test_a_task_that_is_due_at_once_runs_inline_while_a_thread_is_free() -> None:
    scheduler, has_run = Scheduler(1, "batch-test"), threading.Event()
    work = scheduler.try_run_inline("a", lambda: make_timeout_queue(0), first := task())
    assert work is not None
    assert [task_slice.task for task_slice in work[1].slices] == [first]
    assert (
        scheduler.try_run_inline(
            "b", lambda: make_timeout_queue(0, lambda batch: has_run.set()), task()
        )
        is None
    )
    assert not has_run.wait(0.05)
    scheduler.release_inline_slot()
    assert has_run.wait(10)
    scheduler.close()


def test_no_task_runs_inline_until_the_outputs_of_waiting_tasks_are_fetched() -> None:
    # Allow three runs: the threads of the two earlier batches may not have reported the end of
    # their runs yet, and one run must be free.
    scheduler, runs = Scheduler(3, "batch-test"), threading.Semaphore(0)
    queue = make_timeout_queue(0, lambda batch: runs.release())
    scheduler.submit("a", lambda: queue, task())
    assert runs.acquire(timeout=10)
    assert scheduler.try_run_inline("a", lambda: queue, task()) is None
    assert runs.acquire(timeout=10)
    scheduler.task_answered()
    scheduler.task_answered()
    assert scheduler.try_run_inline("a", lambda: queue, task()) is not None
    scheduler.close()


def test_no_task_runs_inline_until_the_outputs_of_a_task_that_is_not_due_are_fetched() -> None:
    scheduler, runs = Scheduler(3, "batch-test"), threading.Semaphore(0)
    queue = make_timeout_queue(0, lambda batch: runs.release())
    assert scheduler.try_run_inline("open", lambda: make_timeout_queue(60), task()) is None
    assert scheduler.try_run_inline("due", lambda: queue, task()) is None
    assert runs.acquire(timeout=10)
    for _ in range(2):
        scheduler.task_answered()
    assert scheduler.try_run_inline("due", lambda: queue, task()) is not None
    scheduler.close()


def test_inline_batches_run_alone_because_the_server_is_idle_or_a_run_is_free() -> None:
    scheduler, reasons = Scheduler(2, "batch-test"), list[AloneReason]()
    for _ in range(2):
        work = scheduler.try_run_inline("a", lambda: make_timeout_queue(0), task())
        assert work is not None
        reasons.append(work[1].alone_reason)
    scheduler.close()
    assert reasons == [AloneReason.IDLE, AloneReason.FREE_RUN]


def test_batches_count_as_running_from_their_start_to_their_end() -> None:
    scheduler, counts = Scheduler(1, "batch-test"), list[int]()
    runs = threading.Semaphore(0)

    def run(batch: Batch) -> None:
        counts.append(scheduler.running)
        runs.release()

    for seconds in (0, 0.02):
        queue = make_timeout_queue(seconds, run)
        scheduler.submit("a", lambda queue=queue: queue, task())  # type: ignore[misc]
        assert runs.acquire(timeout=10)
    scheduler.close(timeout_seconds=10)
    assert counts == [1, 1]
    assert scheduler.running == 0


def test_a_thread_that_may_run_no_batch_sleeps_until_a_batch_ends(clock: Clock) -> None:
    has_run = threading.Event()
    scheduler = Scheduler(1, "batch-test", clock)
    assert scheduler.try_run_inline("a", lambda: make_timeout_queue(0), task()) is not None
    scheduler.submit("open", lambda: make_timeout_queue(0.02, lambda batch: has_run.set()), task())
    clock.now = 0.02
    clock.num_readings = 0
    time.sleep(0.1)
    assert not has_run.is_set()
    # A thread that does not sleep reads the clock thousands of times.
    assert clock.num_readings < 20
    scheduler.release_inline_slot()
    assert has_run.wait(10)
    scheduler.close()


def test_a_policy_may_wait_for_further_tasks_without_a_time_limit() -> None:
    class TwoTasksPolicy(WaitingTasksPolicy):
        def take(self, now: float) -> Batch | None:
            return super().take(now) if self.waiting == 2 or now == math.inf else None

        def next_time(self) -> float | None:
            return None

    scheduler, sizes = Scheduler(1, "batch-test"), list[int]()
    queue = BatchingQueue(
        TwoTasksPolicy(BatchingParameters()), lambda batch: sizes.append(batch.size)
    )
    for size in (1, 5):
        scheduler.submit("a", lambda: queue, task(size))
    scheduler.close(timeout_seconds=10)
    assert sizes == [6]


def test_the_only_task_of_a_server_runs_alone_because_the_server_is_idle() -> None:
    scheduler, reasons = Scheduler(1, "batch-test"), list[AloneReason]()
    runs = threading.Semaphore(0)

    def run(batch: Batch) -> None:
        reasons.append(batch.alone_reason)
        runs.release()

    for _ in range(2):
        scheduler.submit("a", lambda: make_timeout_queue(0, run), task())
        assert runs.acquire(timeout=10)
    scheduler.close()
    # The outputs of the first task are not fetched yet when the second task arrives.
    assert reasons == [AloneReason.IDLE, AloneReason.ONLY_ONE]


def test_a_task_that_is_not_due_or_too_large_for_a_batch_runs_in_the_threads() -> None:
    scheduler, sizes = Scheduler(1, "batch-test"), list[int]()
    splitting = BatchingParameters(
        max_batch_size=4, enable_large_batch_splitting=True, max_execution_batch_size=3
    )
    queue = BatchingQueue(TimeoutPolicy(splitting), lambda batch: sizes.append(batch.size))
    assert scheduler.try_run_inline("a", lambda: make_timeout_queue(60), task()) is None
    assert scheduler.try_run_inline("b", lambda: queue, task(4)) is None
    scheduler.close()
    assert sizes == [3, 1]


def test_a_client_with_a_new_queue_for_each_task_does_not_delay_other_queues() -> None:
    scheduler, has_run, turn = Scheduler(1, "batch-test"), threading.Event(), threading.Semaphore(0)
    scheduler.submit("open", lambda: make_timeout_queue(0.02, lambda batch: has_run.set()), task())
    end = time.monotonic() + 10
    while not has_run.is_set():
        assert time.monotonic() < end
        if (
            scheduler.try_run_inline(
                "hot", lambda: make_timeout_queue(0, lambda batch: turn.release()), task()
            )
            is None
        ):
            assert turn.acquire(timeout=10)
        else:
            scheduler.release_inline_slot()
    scheduler.close()


def test_closed_scheduler_takes_nothing(scheduler: Scheduler) -> None:
    scheduler.close()
    with pytest.raises(Unavailable):
        scheduler.submit("a", make_timeout_queue, task())
    with pytest.raises(Unavailable):
        scheduler.try_run_inline("a", make_timeout_queue, task())


def test_a_task_that_no_thread_can_run_is_refused_and_the_next_task_runs() -> None:
    scheduler = Scheduler(1, "batch")
    has_run = threading.Event()

    def make_queue() -> BatchingQueue:
        return make_timeout_queue(0, lambda batch: has_run.set())

    with no_new_threads(), pytest.raises(Unavailable, match="can't start new thread"):
        scheduler.submit("a", make_queue, task())
    assert scheduler.waiting == 0
    scheduler.submit("a", make_queue, task())
    assert has_run.wait(10)
    scheduler.close()


def test_one_thread_runs_all_batches_if_no_other_can_be_started() -> None:
    scheduler, runs = Scheduler(2, "batch"), threading.Semaphore(0)
    scheduler.start()
    with no_new_threads():
        for _ in range(2):
            scheduler.submit(
                "a", lambda: make_timeout_queue(0, lambda batch: runs.release()), task(2)
            )
        for _ in range(2):
            assert runs.acquire(timeout=10)
    scheduler.close()
