"""A pool runs each function, even while the system cannot start threads."""

import logging
import threading

import pytest

from server.process.thread_pool import ThreadPool
from tests.threads import no_new_threads


def test_functions_run_in_the_threads_that_there_are(caplog: pytest.LogCaptureFixture) -> None:
    gate, has_run = threading.Event(), threading.Event()
    with ThreadPool(2, "pool") as pool:
        with no_new_threads():
            pool.run_soon(gate.wait)
            pool.run_soon(has_run.set)
        assert not has_run.is_set()
        gate.set()
        assert has_run.wait(timeout=10)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "can't start new thread" in caplog.text


def test_new_threads_are_started_when_the_system_can_start_them_again() -> None:
    both_run = threading.Barrier(2, timeout=10)
    with ThreadPool(2, "pool") as pool:
        with no_new_threads():
            pool.run_soon(both_run.wait)
        pool.run_soon(both_run.wait)
    assert not both_run.broken


def test_a_pool_without_a_thread_is_not_created() -> None:
    with no_new_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        ThreadPool(2, "pool")


def test_a_pool_that_was_shut_down_refuses_functions() -> None:
    pool = ThreadPool(1, "pool")
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.run_soon(print)


def test_a_started_function_sets_its_future_even_while_no_thread_can_be_started() -> None:
    gate = threading.Event()
    with ThreadPool(2, "pool") as pool:
        with no_new_threads():
            pool.run_soon(gate.wait)
            result, failure = pool.start(lambda: 7), pool.start(lambda: 1 / 0)
            cancelled = pool.start(lambda: 8)
            assert cancelled.cancel()
        gate.set()
        assert result.result(timeout=10) == 7
        assert isinstance(failure.exception(timeout=10), ZeroDivisionError)
    assert cancelled.cancelled()
