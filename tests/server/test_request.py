"""A request ends at its deadline, for the reason that everybody sees."""

import math
import threading
import time
from dataclasses import replace

import pytest

from server.admission.memory_budget import MemoryBudget
from server.request import DeadlineClock, RequestContext
from tests.server import contexts
from tpuserve.errors import Cancelled, DeadlineExceeded


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_clock_cancels_the_requests_whose_deadlines_have_passed() -> None:
    time_now = Clock()
    clock = DeadlineClock(time_now)
    contexts_ = [RequestContext(deadline) for deadline in (1.0, 2.0, 5.0, math.inf)]
    for context in contexts_:
        clock.watch(context)
    clock.unwatch(contexts_[1])
    time_now.now = 3.0
    assert clock.cancel_expired() == 5.0
    assert [c.cancellation.is_cancelled for c in contexts_] == [True, False, False, False]
    with pytest.raises(DeadlineExceeded, match="time limit of the request has passed"):
        contexts_[0].check()


def test_a_request_that_limits_itself_is_watched_with_the_earlier_deadline() -> None:
    is_cancelled = threading.Event()
    context = contexts.make_context(60_000)
    context.cancellation.add_callback(is_cancelled.set)
    assert context.limited_to(math.inf) is context
    limited = context.limited_to(time.monotonic() + 0.01)
    assert limited.cancellation is context.cancellation
    assert is_cancelled.wait(30)


def test_the_earliest_deadline_of_a_request_counts() -> None:
    time_now = Clock()
    clock = DeadlineClock(time_now)
    context = RequestContext(9.0)
    for deadline in (5.0, 3.0, 9.0):
        clock.watch(replace(context, deadline=deadline))
    time_now.now = 3.0
    clock.cancel_expired()
    assert context.cancellation.is_cancelled


def test_a_request_that_was_cancelled_is_not_watched() -> None:
    clock = DeadlineClock(Clock())
    context = RequestContext(5.0)
    context.cancellation.cancel()
    clock.watch(context)
    assert clock.cancel_expired() == math.inf


def test_the_runtime_gets_the_time_that_is_left() -> None:
    assert RequestContext().remaining_ms() is None
    left_ms = contexts.make_context(50_000).remaining_ms()
    assert left_ms is not None
    assert 20_000 < left_ms <= 50_000
    with pytest.raises(DeadlineExceeded):
        contexts.make_context(-1).remaining_ms()


def test_the_first_reason_of_a_cancellation_counts() -> None:
    context = RequestContext()
    context.cancellation.cancel()
    context.cancellation.cancel(DeadlineExceeded("late"))
    with pytest.raises(Cancelled, match="no longer waits"):
        context.check()


def test_memory_is_reserved_only_where_the_request_has_a_reservation() -> None:
    RequestContext().reserve(10**9)
    budget = MemoryBudget(100)
    RequestContext(memory=budget.reserve()).reserve(60)
    assert budget.reserved_bytes == 60
