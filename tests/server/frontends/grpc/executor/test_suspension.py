"""Suspended calls continue in one thread or, if their outputs are large, in a pool."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.suspension import CallSuspended, ResumingThread
from server.servables.pending import MANY_VALUES, Completion, Pending


class Ended(Completion):
    """Work that has ended."""

    def __init__(self, num_values: int = 0) -> None:
        self._num_values = num_values

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        callback()

    def count_values(self) -> int:
        return self._num_values


@pytest.fixture
def resuming_thread() -> Iterator[ResumingThread]:
    thread = ResumingThread()
    thread.start()
    yield thread
    thread.close(10)


def resume(
    thread: ResumingThread, model: str, function: Callable[[], object], is_large: bool = False
) -> threading.Event:
    """Resume a call; return an event that is set when the call is done."""
    future, is_done = CallFuture(function, ()), threading.Event()
    future.add_done_callback(lambda _: is_done.set())
    pending = Pending(Ended(MANY_VALUES + 1 if is_large else 1), lambda: None)
    thread.resume_when_complete(future, CallSuspended(pending, model))
    return is_done


def test_large_responses_do_not_delay_small_ones(resuming_thread: ResumingThread) -> None:
    gate = threading.Event()
    large = [resume(resuming_thread, "large", lambda: gate.wait(30), True) for _ in range(10)]
    for model in ("small", "large"):
        assert resume(resuming_thread, model, lambda: None).wait(30)
    assert not any(call.is_set() for call in large)
    gate.set()
    assert all(call.wait(30) for call in large)


def test_the_size_of_each_response_chooses_its_thread(resuming_thread: ResumingThread) -> None:
    threads: list[str] = []

    def record_thread() -> None:
        threads.append(threading.current_thread().name)

    for is_large in (True, False, True, False):
        assert resume(resuming_thread, "model", record_thread, is_large).wait(30)
    assert [name.startswith("grpc-large-response") for name in threads] == [True, False] * 2
    assert threads[1] == threads[3] == "grpc-resume"


def test_models_with_large_responses_take_turns(resuming_thread: ResumingThread) -> None:
    is_blocked, order = threading.Semaphore(0), list[str]()
    gates = [threading.Event() for _ in range(4)]

    def block(gate: threading.Event) -> None:
        is_blocked.release()
        gate.wait(30)

    # Occupy all threads, so that the next calls wait.
    blocked = [resume(resuming_thread, "first", partial(block, gate), True) for gate in gates]
    for _ in blocked:
        assert is_blocked.acquire(timeout=30)
    waiting = [
        resume(resuming_thread, model, partial(order.append, model), True)
        for model in ("first", "first", "first", "second")
    ]
    # A single thread runs all calls that wait.
    gates[0].set()
    assert all(call.wait(30) for call in waiting)
    assert order == ["first", "second", "first", "first"]
    for gate in gates:
        gate.set()
    assert all(call.wait(30) for call in blocked)
