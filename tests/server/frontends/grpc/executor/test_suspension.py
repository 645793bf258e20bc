"""Suspended calls continue in one thread, or in a pool if the responses of their model are slow."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.suspension import CallSuspended, ResumingThread
from server.servables.pending import Completion, Pending


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


def resume(thread: ResumingThread, model: str, function: Callable[[], object]) -> threading.Event:
    """Resume a call; return an event that is set when the call is done."""
    future, is_done = CallFuture(function, ()), threading.Event()
    future.add_done_callback(lambda _: is_done.set())
    thread.resume_when_complete(future, CallSuspended(Pending(Ended(), lambda: None), model))
    return is_done


def wait_until_slow(thread: ResumingThread, model: str, is_slow: bool) -> None:
    """Wait until the last response of a model is recorded, just after its call was done."""
    deadline = time.monotonic() + 30
    while (model in thread._slow_models) != is_slow:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def compute() -> None:
    """Use the processor for 50 ms."""
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass


def test_a_model_with_slow_responses_does_not_delay_other_models(
    resuming_thread: ResumingThread,
) -> None:
    gate = threading.Event()
    assert resume(resuming_thread, "slow", compute).wait(30)
    wait_until_slow(resuming_thread, "slow", True)
    slow = [resume(resuming_thread, "slow", lambda: gate.wait(30)) for _ in range(2)]
    assert resume(resuming_thread, "quick", lambda: None).wait(30)
    assert not any(call.is_set() for call in slow)
    gate.set()
    assert all(call.wait(30) for call in slow)


def test_quick_responses_stay_in_the_one_thread(resuming_thread: ResumingThread) -> None:
    threads: list[str] = []

    def record_thread() -> None:
        threads.append(threading.current_thread().name)

    assert resume(resuming_thread, "model", record_thread).wait(30)
    assert resume(resuming_thread, "model", compute).wait(30)
    wait_until_slow(resuming_thread, "model", True)
    assert resume(resuming_thread, "model", record_thread).wait(30)
    # A quick response brings the model back.
    wait_until_slow(resuming_thread, "model", False)
    assert resume(resuming_thread, "model", record_thread).wait(30)
    assert threads[0] == threads[2] == "grpc-resume"
    assert threads[1].startswith("grpc-large-response")
