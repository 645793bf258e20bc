"""The queue of a model counts its runs and their time, and limits the runs of a pool."""

import pytest

from server.request import RequestContext
from server.scheduling.model_queue import ModelQueue
from server.scheduling.run_limits import RunLimits
from server.scheduling.ticket import InlineTicket, RunPool


def begin(queue: ModelQueue, pool: RunPool, now: float = 0) -> InlineTicket:
    ticket = InlineTicket(RequestContext(model=queue.model), pool)
    queue.begin_run(ticket, now)
    return ticket


def test_virtual_time_grows_by_the_expected_time_and_is_corrected_by_the_real_time() -> None:
    queue, pool = ModelQueue("a", RunLimits(2)), RunPool(8)
    at_begin, at_end = [], []
    for start, end in ((0, 2), (2, 6), (6, 7)):
        ticket = begin(queue, pool, start)
        at_begin.append(queue.virtual_time)
        queue.end_run(ticket, end)
        at_end.append(queue.virtual_time)
    # The expected times are 0 s, 2 s and 2 s + (4 s - 2 s) * 0.1 = 2.2 s.
    assert at_begin == pytest.approx([0, 4, 8.2])
    assert at_end == pytest.approx([2, 6, 7])


def test_no_request_starts_while_more_run_than_a_lowered_limit_allows() -> None:
    queue, pool, half = ModelQueue("a", RunLimits(8)), RunPool(8), RunPool(8, share=0.5)
    begin(queue, pool)
    tickets = [begin(queue, half) for _ in range(3)]
    queue.limits = RunLimits(2)
    assert not queue.may_start(pool)
    # The share of two is one, of five two.
    queue.limits = RunLimits(5)
    assert (queue.may_start(pool), queue.may_start(half)) == (True, False)
    queue.end_run(tickets[0], 0)
    assert not queue.may_start(half)
    queue.end_run(tickets[1], 0)
    assert queue.may_start(half)


def test_pool_with_a_share_gets_as_many_runs_as_the_share_and_at_least_one() -> None:
    pool = RunPool(8)
    for max_runs, part, share in ((2, 0.5, 1), (3, 0.5, 1), (9, 0.5, 4), (9, 0, 1)):
        queue, limited = ModelQueue("a", RunLimits(max_runs)), RunPool(8, share=part)
        begin(queue, pool)
        tickets = []
        while queue.may_start(limited):
            tickets.append(begin(queue, limited))
        assert len(tickets) == share
        queue.end_run(tickets[0], 0)
        assert queue.may_start(limited)
        begin(queue, limited)
        assert not queue.may_start(limited)
