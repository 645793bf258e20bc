"""Tasks end at their deadlines, each once, and answered tasks are forgotten."""

import math

import numpy as np
import pytest

from server.batching.task_deadlines import TaskDeadlines
from server.batching.tasks import BatchTask
from tpuserve.errors import DeadlineExceeded


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_task(deadline: float | None) -> BatchTask:
    return BatchTask({"x": np.zeros(1)}, 1, 0, deadline)


def test_tasks_end_at_their_deadlines_in_any_order() -> None:
    clock = Clock()
    deadlines = TaskDeadlines(clock)
    late, early, endless = make_task(5), make_task(2), make_task(None)
    for task in (late, early, endless):
        deadlines.add(task)
    assert deadlines.expire() == 2
    clock.now = 2
    assert deadlines.expire() == 5
    assert [task.is_done for task in (late, early, endless)] == [False, True, False]
    with pytest.raises(DeadlineExceeded):
        early.wait(clock.now)
    clock.now = 9
    assert deadlines.expire() == math.inf
    assert [task.is_done for task in (late, early, endless)] == [True, True, False]


def test_a_removed_task_does_not_end_and_is_not_stored() -> None:
    clock = Clock()
    deadlines = TaskDeadlines(clock)
    task = make_task(5)
    deadlines.add(task)
    deadlines.remove(task)
    deadlines.remove(task)
    clock.now = 9
    assert deadlines.expire() == math.inf
    assert not task.is_done


def test_a_callback_that_fails_keeps_no_other_task_from_ending(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise RuntimeError("on purpose")

    clock = Clock()
    deadlines = TaskDeadlines(clock)
    tasks = [make_task(deadline) for deadline in (2, 2, 9)]
    for task in tasks:
        task.add_done_callback(fail)
        deadlines.add(task)
    clock.now = 2
    assert deadlines.expire() == 9
    assert [task.is_done for task in tasks] == [True, True, False]
    assert caplog.messages == ["a function that ends requests at their time limits has failed"] * 2
