"""With the policy "continuous", a batch is all tasks that wait when a run ends."""

import pytest

from server.batching.policy import ContinuousPolicy
from server.batching.tasks import AloneReason, BatchTask
from server.config.batching_parameters import BatchingParameters
from tests.server import contexts
from tpuserve.errors import InvalidInput, QueueFull


def policy(*sizes: int, **parameters: object) -> tuple[ContinuousPolicy, list[BatchTask]]:
    """Return a policy with one waiting task of each size, and the list of the tasks."""
    waiting = ContinuousPolicy(BatchingParameters(**{"max_batch_size": 8, **parameters}))  # type: ignore[arg-type]
    tasks = [BatchTask({}, size, 0, contexts.make_context()) for size in sizes]
    for task in tasks:
        waiting.add(task, 0)
    return waiting, tasks


def taken_sizes(waiting: ContinuousPolicy) -> list[list[int]]:
    batches = []
    while (batch := waiting.take(0)) is not None:
        batches.append([task_slice.size for task_slice in batch.slices])
    return batches


def test_all_that_waits_is_taken_in_order_up_to_the_largest_batch() -> None:
    waiting, tasks = policy(3, 4, 2, 1)
    batch = waiting.take(0)
    assert batch is not None
    assert [task_slice.task for task_slice in batch.slices] == tasks[:2]
    assert taken_sizes(waiting) == [[2, 1]]


def test_a_task_that_waits_is_ready_at_once() -> None:
    waiting, _ = policy()
    assert waiting.next_time() is None
    assert waiting.take(0) is None
    waiting.add(BatchTask({}, 1, 5, contexts.make_context()), 5)
    assert waiting.next_time() == 0


def test_the_reason_why_a_request_is_alone_is_known() -> None:
    waiting, _ = policy(7, 2)
    reasons = [batch.alone_reason for _ in range(2) if (batch := waiting.take(0)) is not None]
    assert reasons == [AloneReason.FULL, AloneReason.ONLY_ONE]


def test_a_large_request_is_split_or_refused() -> None:
    splitting, _ = policy(8, 1, enable_large_batch_splitting=True, max_execution_batch_size=3)
    assert taken_sizes(splitting) == [[3], [3], [2, 1]]
    with pytest.raises(InvalidInput, match="^Task size 9 is larger than maximum input batch size"):
        policy(9)


def test_a_batch_leaves_rows_behind_rather_than_pad_more_rows() -> None:
    # 9 rows: the allowed size 8 leaves one row behind, and the next size, 64, needs 55 rows of
    # padding.
    sizes = {"max_batch_size": 64, "allowed_batch_sizes": (8, 64)}
    assert taken_sizes(policy(*[1] * 9, **sizes)[0]) == [[1] * 8, [1]]
    # 40 rows: the size 64 needs 24 rows of padding, fewer than the 32 rows that the size 8 would
    # leave behind.
    assert taken_sizes(policy(*[1] * 40, **sizes)[0]) == [[1] * 40]
    # A single task that is larger than the smaller size runs padded to the next size.
    assert taken_sizes(policy(9, **sizes)[0]) == [[9]]


def test_the_rows_that_wait_are_bounded() -> None:
    waiting, tasks = policy(8, 8, max_enqueued_batches=2)
    with pytest.raises(QueueFull, match="currently 16 rows enqueued"):
        waiting.add(BatchTask({}, 1, 0, contexts.make_context()), 0)
    waiting.remove(tasks[0])
    waiting.add(BatchTask({}, 8, 0, contexts.make_context()), 0)
    assert taken_sizes(waiting) == [[8], [8]]


def test_split_task_counts_as_one_that_waits_until_its_last_slice_leaves() -> None:
    waiting, _ = policy(8, 1, enable_large_batch_splitting=True, max_execution_batch_size=3)
    counts = []
    while waiting.take(0) is not None:
        counts.append(waiting.waiting)
    assert counts == [2, 2, 0]


def test_a_removed_task_leaves_with_all_its_slices() -> None:
    waiting, tasks = policy(8, 1, enable_large_batch_splitting=True, max_execution_batch_size=3)
    waiting.remove(tasks[0])
    assert waiting.waiting == 1
    assert taken_sizes(waiting) == [[1]]
