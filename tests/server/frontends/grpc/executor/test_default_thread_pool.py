"""The pool on the public API runs calls, and replaces threads that wait for a slow client."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from server.frontends.grpc.executor.factory import DefaultThreadPool
from server.frontends.grpc.executor.stalled_calls import StalledCallLimits
from tests.threads import no_new_threads


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Call:
    """A call whose message arrives when `deliver` is called, unless `cancel` was called before."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self._has_ended = threading.Event()
        self.is_cancelled = False

    def messages(self) -> Iterator[bytes]:
        self.has_begun.set()
        assert self._has_ended.wait(10)
        if not self.is_cancelled:
            yield b"message"

    def deliver(self) -> None:
        self._has_ended.set()

    def peer(self) -> str:
        return "unix:"

    def cancel(self) -> None:
        self.is_cancelled = True
        self._has_ended.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def executor(clock: Clock) -> Iterator[DefaultThreadPool]:
    executor = DefaultThreadPool(1, StalledCallLimits(60, clock=clock))
    yield executor
    executor.shutdown()


def receive(executor: DefaultThreadPool, call: Call) -> Any:
    """Receive a call's message in a thread; return the messages and an event for the end."""
    received: list[bytes | None] = []
    has_ended = threading.Event()
    future = executor.submit(lambda: received.append(executor.receive_first(call.messages(), call)))
    future.add_done_callback(lambda _: has_ended.set())
    assert call.has_begun.wait(10)
    return received, has_ended


def submit_event(executor: DefaultThreadPool) -> threading.Event:
    has_run = threading.Event()
    executor.submit(has_run.set)
    return has_run


def test_callback_that_is_added_after_the_end_is_called_once(executor: DefaultThreadPool) -> None:
    called: list[object] = []
    future = executor.submit(lambda: None)
    assert submit_event(executor).wait(10)
    future.add_done_callback(called.append)
    assert called == [future]


def test_thread_survives_a_function_that_raises(
    executor: DefaultThreadPool, caplog: pytest.LogCaptureFixture
) -> None:
    executor.submit(lambda: 1 / 0)
    assert submit_event(executor).wait(10)
    assert "ZeroDivisionError" in caplog.text


def test_message_is_received(executor: DefaultThreadPool) -> None:
    call = Call()
    received, has_ended = receive(executor, call)
    call.deliver()
    assert has_ended.wait(10)
    assert received == [b"message"]


def test_thread_that_waits_long_for_a_message_is_replaced(
    executor: DefaultThreadPool, clock: Clock
) -> None:
    call = Call()
    _, received = receive(executor, call)
    clock.now = 1
    assert submit_event(executor).wait(10)
    assert executor.size == 2
    call.deliver()
    assert received.wait(10)


def test_thread_is_replaced_as_soon_as_the_system_can_start_another(
    executor: DefaultThreadPool, clock: Clock
) -> None:
    call = Call()
    _, received = receive(executor, call)
    clock.now = 1
    with no_new_threads():
        has_run = submit_event(executor)
        executor.handle_stalled_calls()
        assert executor.size == 1
    executor.handle_stalled_calls()
    assert has_run.wait(10)
    assert executor.size == 2
    call.deliver()
    assert received.wait(10)


def test_thread_that_waits_briefly_is_not_replaced(
    executor: DefaultThreadPool, clock: Clock
) -> None:
    call = Call()
    receive(executor, call)
    clock.now = 0.05
    later = submit_event(executor)
    assert executor.size == 1
    call.deliver()
    assert later.wait(10)


def test_call_whose_message_is_late_is_cancelled(executor: DefaultThreadPool, clock: Clock) -> None:
    call = Call()
    received, has_ended = receive(executor, call)
    clock.now = 59
    executor.handle_stalled_calls()
    assert not call.is_cancelled
    clock.now = 61
    executor.handle_stalled_calls()
    assert has_ended.wait(10)
    assert received == [None]


def test_lower_limit_of_waiting_calls_than_the_pools_own_is_kept() -> None:
    executor = DefaultThreadPool(2, StalledCallLimits(60, max_calls=1))
    try:
        old, new = Call(), Call()
        _, old_is_done = receive(executor, old)
        _, new_is_done = receive(executor, new)
        assert old_is_done.wait(10)
        assert (old.is_cancelled, new.is_cancelled) == (True, False)
        new.deliver()
        assert new_is_done.wait(10)
    finally:
        executor.shutdown()
