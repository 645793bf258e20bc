"""Quick work runs in the event loop, and slow work in threads."""

import asyncio
import threading
from functools import partial

import pytest

from server.admission.latency_tracker import LatencyTracker
from server.batching.tasks import BatchTask
from server.frontends.rest.dispatch.workers import Workers
from server.frontends.rest.transport.responses import Response
from server.scheduling.request_queues import RequestQueues
from server.scheduling.run_limits import RunLimits
from server.servables.pending import Pending
from tests.server import contexts
from tests.threads import no_new_threads
from tpuserve.errors import Cancelled, DeadlineExceeded

QUICK, SLOW = 0.0001, 0.2


def build_tracker(*seconds: float) -> LatencyTracker:
    tracker = LatencyTracker()
    for duration in seconds:
        tracker.record(duration)
    return tracker


def test_route_is_quick_once_the_fastest_of_several_runs_is() -> None:
    assert not build_tracker(*[QUICK] * 7).is_quick
    assert build_tracker(*[QUICK] * 8).is_quick
    assert build_tracker(*[SLOW] * 7, QUICK).is_quick
    assert not build_tracker(*[SLOW] * 8).is_quick


def test_very_slow_run_leads_to_threads_for_the_next_512_runs() -> None:
    tracker = build_tracker(*[QUICK] * 8, *[0.03] * 3, *[QUICK] * 10)
    assert tracker.is_quick
    tracker.record(SLOW)
    for _ in range(512):
        assert not tracker.is_quick
        tracker.record(QUICK)
    assert tracker.is_quick


def test_route_that_became_slow_is_not_quick() -> None:
    assert not build_tracker(*[QUICK] * 8, *[0.002] * 4).is_quick
    assert build_tracker(*[QUICK] * 8, *[0.002, 0.002, 0.002, QUICK] * 4).is_quick


@pytest.mark.parametrize(
    ("size", "is_batched", "is_quick", "inline"),
    [
        (10, False, True, True),
        (10, False, False, False),
        (9999, False, True, False),
        (10, True, True, False),
    ],
)
def test_only_quick_and_small_work_runs_in_the_event_loop(
    size: int, is_batched: bool, is_quick: bool, inline: bool
) -> None:
    workers = Workers(1, RequestQueues(lambda model: RunLimits(only_waits=is_batched)))
    tracker = build_tracker(*[QUICK] * 8) if is_quick else LatencyTracker()
    ran_in = asyncio.run(workers.run(contexts.make_context(), threading.get_ident, size, tracker))
    assert (ran_in == threading.get_ident()) == inline
    workers.close()


def test_work_runs_in_the_threads_that_there_are_if_no_other_can_be_started() -> None:
    workers = Workers(2)

    async def run_both() -> list[int]:
        runs = [
            workers.run(contexts.make_context(), threading.get_ident, 9999, LatencyTracker())
            for _ in range(2)
        ]
        return await asyncio.gather(*runs)

    with no_new_threads():
        ran_in = asyncio.run(run_both())
    assert threading.get_ident() not in ran_in
    workers.close()


def test_late_work_is_abandoned() -> None:
    workers = Workers(1)
    gate = threading.Event()
    with pytest.raises(DeadlineExceeded, match="time limit of the request has passed"):
        asyncio.run(
            workers.run(contexts.make_context(20), partial(gate.wait, 10), 0, LatencyTracker())
        )
    gate.set()
    workers.close()


def test_pending_result_that_comes_too_late_is_finished() -> None:
    workers = Workers(threads=1)
    is_late = threading.Event()
    # The task is done when the batch of the request has run.
    task = BatchTask({}, 0, 0.0, contexts.make_context())
    finished = threading.Event()

    def finish() -> Response:
        finished.set()
        return Response(200, b"")

    def start_late() -> Pending[Response]:
        assert is_late.wait(60)
        return Pending(task, finish)

    async def give_up() -> None:
        with pytest.raises(DeadlineExceeded):
            await workers.run(contexts.make_context(20), start_late, 10_000, LatencyTracker())
        is_late.set()
        # The thread passes its result to the event loop before it ends.
        await asyncio.to_thread(workers._threads.shutdown)

    asyncio.run(give_up())
    assert not finished.is_set()
    task.fail(Cancelled(""))
    assert finished.is_set()
