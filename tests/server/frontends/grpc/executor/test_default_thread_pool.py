"""Calls are run, and a sender that stalls holds up nobody and ends."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from server.frontends.grpc.executor.default_thread_pool import DefaultThreadPool


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Call:
    """A call whose message comes when it is let, or never once it is cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._ended = threading.Event()
        self.is_cancelled = False

    def messages(self) -> Iterator[bytes]:
        self.begun.set()
        assert self._ended.wait(10)
        if not self.is_cancelled:
            yield b"message"

    def let(self) -> None:
        self._ended.set()

    def cancel(self) -> None:
        self.is_cancelled = True
        self._ended.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def threads(clock: Clock) -> Iterator[DefaultThreadPool]:
    threads = DefaultThreadPool(1, message_seconds=60, clock=clock)
    yield threads
    threads.shutdown()


def receive(threads: DefaultThreadPool, call: Call) -> Any:
    """Has a thread wait for the call's message; what comes of it is put into the list."""
    received: list[bytes | None] = []
    done = threading.Event()
    task = threads.submit(lambda: received.append(threads.receive_first(call.messages(), call)))
    task.add_done_callback(lambda _: done.set())
    assert call.begun.wait(10)
    return received, done


def run(threads: DefaultThreadPool) -> threading.Event:
    done = threading.Event()
    threads.submit(done.set)
    return done


def test_callback_is_called_once_whenever_it_is_added(threads: DefaultThreadPool) -> None:
    called: list[object] = []
    task = threads.submit(lambda: None)
    assert run(threads).wait(10)
    task.add_done_callback(called.append)
    assert called == [task]


def test_function_that_fails_costs_no_thread(
    threads: DefaultThreadPool, caplog: pytest.LogCaptureFixture
) -> None:
    threads.submit(lambda: 1 / 0)
    assert run(threads).wait(10)
    assert "ZeroDivisionError" in caplog.text


def test_message_is_received(threads: DefaultThreadPool) -> None:
    call = Call()
    received, done = receive(threads, call)
    call.let()
    assert done.wait(10)
    assert received == [b"message"]


def test_thread_that_waits_for_long_is_made_up_for(
    threads: DefaultThreadPool, clock: Clock
) -> None:
    call = Call()
    _, received = receive(threads, call)
    clock.now = 1
    assert run(threads).wait(10)
    assert threads.size == 2
    call.let()
    assert received.wait(10)


def test_thread_that_waits_shortly_is_not(threads: DefaultThreadPool, clock: Clock) -> None:
    call = Call()
    receive(threads, call)
    clock.now = 0.05
    later = run(threads)
    assert threads.size == 1
    call.let()
    assert later.wait(10)


def test_message_that_comes_too_late_is_given_up(threads: DefaultThreadPool, clock: Clock) -> None:
    call = Call()
    received, done = receive(threads, call)
    clock.now = 59
    threads.look()
    assert not call.is_cancelled
    clock.now = 61
    threads.look()
    assert done.wait(10)
    assert received == [None]
