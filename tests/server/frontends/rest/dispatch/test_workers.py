"""What is quick runs where it is asked, and what is not in threads."""

import asyncio
import sys
import threading
from functools import partial

import pytest

from server.frontends.rest.dispatch.workers import LatencyTracker, Workers, runqueue_wait_seconds
from tpuserve.errors import DeadlineExceeded

QUICK, SLOW = 0.0001, 0.2


def settled(*seconds: float) -> LatencyTracker:
    pace = LatencyTracker(lambda: 0.0)
    for each in seconds:
        pace.record(each)
    return pace


def test_path_is_quick_once_the_best_of_some_runs_is() -> None:
    assert not settled(*[QUICK] * 7).is_quick
    assert settled(*[QUICK] * 8).is_quick
    assert settled(*[SLOW] * 7, QUICK).is_quick
    assert not settled(*[SLOW] * 8).is_quick


def test_slow_run_ends_that_each_time_for_twice_as_long_and_a_wait_does_not() -> None:
    pace = settled(*[QUICK] * 8, *[0.03] * 3, *[QUICK] * 10, 0.03)
    for runs in (16, 32):
        assert pace.is_quick
        pace.record(SLOW)
        for _ in range(runs):
            assert not pace.is_quick
            pace.record(QUICK)
    assert pace.is_quick


def test_slow_run_is_forgiven_after_thousands_of_quick_ones() -> None:
    pace = settled(*[QUICK] * 8, SLOW, *[QUICK] * 16, *[QUICK] * 4096, SLOW)
    for _ in range(8):
        assert not pace.is_quick
        pace.record(QUICK)
    assert pace.is_quick


def test_wait_for_a_processor_is_no_fault_of_the_model() -> None:
    waited = [0.0]
    pace = LatencyTracker(lambda: waited[0])
    for _ in range(8 + 1):
        pace.record(QUICK)
    for _ in range(10):
        waited[0] += SLOW
        pace.record(SLOW)
    assert pace.is_quick
    pace.record(SLOW)
    assert not pace.is_quick


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_linux_tells_how_long_a_thread_has_waited() -> None:
    before = runqueue_wait_seconds()
    assert 0 <= before <= runqueue_wait_seconds()


def test_path_that_has_become_slow_is_not_quick_any_more() -> None:
    assert not settled(*[QUICK] * 8, *[0.002] * 4).is_quick


@pytest.mark.parametrize(
    ("size", "may_run_inline", "is_quick", "inline"),
    [
        (10, True, True, True),
        (10, True, False, False),
        (9999, True, True, False),
        (10, False, True, False),
    ],
)
def test_only_what_is_quick_and_small_runs_in_the_event_loop(
    size: int, may_run_inline: bool, is_quick: bool, inline: bool
) -> None:
    workers = Workers(1, 1000, may_run_inline)
    pace = settled(*[QUICK] * 8) if is_quick else LatencyTracker()
    ran_in = asyncio.run(workers.run(threading.get_ident, size, pace))
    assert (ran_in == threading.get_ident()) == inline
    workers.close()


def test_late_work_is_not_waited_for() -> None:
    workers = Workers(1, 20)
    gate = threading.Event()
    with pytest.raises(DeadlineExceeded, match="within 20 ms"):
        asyncio.run(workers.run(partial(gate.wait, 10), 0, LatencyTracker()))
    gate.set()
    workers.close()
