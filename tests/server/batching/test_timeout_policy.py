"""With the policy "timeout", a batch runs when it is full, not the last, or timed out."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.batching.policy import TimeoutPolicy
from server.batching.tasks import Batch, BatchTask
from server.config.batching_parameters import BatchingParameters
from tests.server import contexts
from tpuserve.errors import Code, InvalidInput, QueueFull


def task(size: int) -> BatchTask:
    return BatchTask({}, size, 0, contexts.make_context())


def sizes(batch: Batch | None) -> list[int] | None:
    return None if batch is None else [task_slice.size for task_slice in batch.slices]


def policy(**changes: int | bool) -> TimeoutPolicy:
    """Return a policy with batches of four rows, a timeout of 0.1 s, and at most two batches."""
    defaults = {"max_batch_size": 4, "batch_timeout_micros": 100_000, "max_enqueued_batches": 2}
    return TimeoutPolicy(BatchingParameters(**{**defaults, **changes}))  # type: ignore[arg-type]


def test_open_batch_waits_for_its_time() -> None:
    queue = policy()
    queue.add(task(1), now=10)
    queue.add(task(2), now=10.05)
    assert queue.next_time() == 10.1
    assert queue.take(10.09) is None
    assert sizes(queue.take(10.1)) == [1, 2]
    assert queue.next_time() is None
    assert queue.take(11) is None


def test_room_and_time_of_a_removed_task_are_free_again() -> None:
    queue = policy()
    leaving, staying = task(3), task(1)
    queue.add(leaving, now=10)
    queue.add(staying, now=10.05)
    queue.remove(leaving)
    queue.remove(leaving)
    queue.add(task(3), now=10.06)
    assert sizes(queue.take(10.06)) == [1, 3]
    queue.add(task(4), now=11)
    last = task(4)
    queue.add(last, now=11)
    queue.remove(last)
    queue.add(task(4), now=11)
    assert queue.waiting == 2


def test_a_split_task_leaves_all_of_its_batches() -> None:
    queue = policy(enable_large_batch_splitting=True, max_batch_size=8, max_execution_batch_size=4)
    leaving = task(6)
    queue.add(task(1), now=10)
    queue.add(leaving, now=10)
    queue.remove(leaving)
    assert (queue.waiting, queue.next_time()) == (1, 10.1)


def test_without_a_time_a_batch_is_run_at_once() -> None:
    queue = policy(batch_timeout_micros=0)
    queue.add(task(1), now=10)
    assert sizes(queue.take(10)) == [1]


def test_full_batch_is_run_at_once() -> None:
    queue = policy()
    queue.add(task(3), now=10)
    queue.add(task(1), now=10)
    assert sizes(queue.take(10)) == [3, 1]


def test_batch_that_the_next_task_does_not_fit_in_is_run_at_once() -> None:
    queue = policy()
    queue.add(task(3), now=10)
    queue.add(task(2), now=10.05)
    assert queue.waiting == 2
    assert sizes(queue.take(10.05)) == [3]
    assert queue.take(10.14) is None
    assert sizes(queue.take(10.15)) == [2]
    assert queue.waiting == 0


def test_task_above_the_largest_batch_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        policy().add(task(5), now=0)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert str(caught.value) == "Task size 5 is larger than maximum input batch size 4"


def test_full_queue_refuses_and_keeps_what_it_has() -> None:
    queue = policy()
    for _ in range(2):
        queue.add(task(3), now=0)
    with pytest.raises(QueueFull) as caught:
        queue.add(task(2), now=0)
    assert caught.value.code is Code.UNAVAILABLE
    assert str(caught.value) == (
        "The batch scheduling queue to which this task was submitted is full; currently 2 batches "
        "enqueued and max_enqueued_batches is 2"
    )
    queue.add(task(1), now=0)
    assert sizes(queue.take(0)) == [3]
    assert sizes(queue.take(0)) == [3, 1]


def splitting() -> TimeoutPolicy:
    return policy(max_batch_size=7, enable_large_batch_splitting=True, max_execution_batch_size=4)


def test_large_task_fills_the_open_batch_and_goes_on_in_the_next() -> None:
    queue = splitting()
    queue.add(task(3), now=0)
    large = task(5)
    queue.add(large, now=0)
    first, second = queue.take(0), queue.take(0)
    assert sizes(first) == [3, 1]
    assert sizes(second) == [4]
    assert first is not None
    assert second is not None
    assert [
        (task_slice.start, task_slice.stop) for task_slice in (first.slices[1], second.slices[0])
    ] == [
        (0, 1),
        (1, 5),
    ]
    assert first.slices[1].task is second.slices[0].task is large


def test_split_task_counts_as_one_that_waits_until_its_last_part_leaves() -> None:
    queue = splitting()
    queue.add(task(3), now=0)
    queue.add(task(5), now=0)
    assert queue.waiting == 2
    queue.take(0)
    assert queue.waiting == 1
    queue.take(0)
    assert queue.waiting == 0


def test_large_task_that_does_not_fit_as_a_whole_is_refused_as_a_whole() -> None:
    queue = splitting()
    queue.add(task(3), now=0)
    with pytest.raises(QueueFull):
        queue.add(task(6), now=0)
    assert queue.waiting == 1
    queue.add(task(5), now=0)


def test_task_above_what_may_be_split_is_refused() -> None:
    with pytest.raises(InvalidInput, match="^Task size 8 is larger than .* size 7$"):
        splitting().add(task(8), now=0)


def test_task_without_rows_is_run_too() -> None:
    queue = policy(batch_timeout_micros=0)
    queue.add(task(0), now=0)
    assert sizes(queue.take(0)) == [0]
    queue.add(task(4), now=0)
    queue.add(task(0), now=0)
    assert sizes(queue.take(0)) == [4, 0]


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40),
    largest=st.integers(1, 5),
    is_split=st.booleans(),
)
def test_every_row_that_is_taken_in_is_run_once_and_in_order(
    steps: list[tuple[int, bool]], largest: int, is_split: bool
) -> None:
    queue = TimeoutPolicy(
        BatchingParameters(
            max_batch_size=9 if is_split else largest,
            max_enqueued_batches=3,
            enable_large_batch_splitting=is_split,
            max_execution_batch_size=largest if is_split else None,
        )
    )
    taken_in: list[tuple[BatchTask, int]] = []
    run: list[tuple[BatchTask, int]] = []
    batches: list[Batch] = []
    for size, is_taken in steps:
        new = task(size)
        try:
            queue.add(new, now=0)
        except (QueueFull, InvalidInput):
            pass
        else:
            taken_in += [(new, row) for row in range(size)]
        if is_taken and (batch := queue.take(now=0)) is not None:
            batches.append(batch)
    while (batch := queue.take(now=0)) is not None:
        batches.append(batch)
    for batch in batches:
        assert batch.size <= largest
        run += [
            (task_slice.task, row)
            for task_slice in batch.slices
            for row in range(task_slice.start, task_slice.stop)
        ]
    assert run == taken_in
    assert queue.waiting == 0
