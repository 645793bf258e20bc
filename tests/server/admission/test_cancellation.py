"""The cancellation of one request."""

import threading
from functools import partial

import pytest

from server.admission.cancellation import Cancellation
from tpuserve.errors import Cancelled, Code


def test_callbacks_are_called_once_however_often_a_request_is_cancelled() -> None:
    cancellation, calls = Cancellation(), []
    cancellation.add_callback(lambda: calls.append("first"))
    cancellation.add_callback(lambda: calls.append("second"))
    assert (cancellation.is_cancelled, calls) == (False, [])
    cancellation.cancel()
    cancellation.cancel()
    assert (cancellation.is_cancelled, calls) == (True, ["first", "second"])


def test_a_callback_of_a_cancelled_request_is_called_at_once() -> None:
    cancellation, calls = Cancellation(), []
    cancellation.cancel()
    cancellation.add_callback(lambda: calls.append("late"))
    assert calls == ["late"]


def test_a_removed_callback_is_not_called() -> None:
    cancellation, calls = Cancellation(), []

    def callback() -> None:
        calls.append("called")

    cancellation.add_callback(callback)
    cancellation.remove_callback(callback)
    cancellation.remove_callback(callback)
    cancellation.cancel()
    assert calls == []


def test_a_callback_may_use_the_cancellation_that_calls_it() -> None:
    cancellation, states = Cancellation(), []

    def callback() -> None:
        cancellation.remove_callback(callback)
        cancellation.add_callback(lambda: states.append(cancellation.is_cancelled))

    cancellation.add_callback(callback)
    cancellation.cancel()
    assert states == [True]


def test_only_a_cancelled_request_raises() -> None:
    cancellation = Cancellation()
    cancellation.raise_if_cancelled()
    cancellation.cancel()
    with pytest.raises(Cancelled, match=r"no longer waits") as caught:
        cancellation.raise_if_cancelled()
    assert caught.value.code is Code.CANCELLED


def test_a_callback_added_while_another_thread_cancels_is_called_once() -> None:
    calls: list[int] = []
    for number in range(200):
        cancellation, barrier = Cancellation(), threading.Barrier(2)
        cancelling = threading.Thread(target=cancel_after, args=(barrier, cancellation))
        cancelling.start()
        barrier.wait(30)
        cancellation.add_callback(partial(calls.append, number))
        cancelling.join(30)
    assert calls == list(range(200))


def cancel_after(barrier: threading.Barrier, cancellation: Cancellation) -> None:
    barrier.wait(30)
    cancellation.cancel()
