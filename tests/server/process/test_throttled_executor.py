"""Background work has a lower priority than requests once the server answers requests."""

import os
import sys
import threading

import pytest

from server.process.thread_pool import ThrottledExecutor


def priority() -> tuple[str, int]:
    return threading.current_thread().name, os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads have none elsewhere")
def test_work_goes_last_from_the_first_request_on() -> None:
    here = priority()
    executor = ThrottledExecutor(1)
    assert executor(priority) == here
    executor.enable()
    name, nice = executor(priority)
    assert name.startswith("background")
    assert nice >= min(10 + here[1], 10)
    assert priority() == here


def test_error_of_the_work_is_the_callers() -> None:
    executor = ThrottledExecutor(1)
    executor.enable()
    with pytest.raises(ZeroDivisionError):
        executor(lambda: 1 // 0)


@pytest.mark.parametrize(("processors", "rests"), [(2, 0.03), (4, 0.01), (8, 0), (64, 0)])
def test_an_eighth_of_the_machine_works_at_most(processors: int, rests: float) -> None:
    slept: list[float] = []
    times = iter([1.0, 1.01])
    executor = ThrottledExecutor(1, processors, clock=lambda: next(times), sleep=slept.append)
    executor.enable()
    assert executor(lambda: "done") == "done"
    assert slept == [pytest.approx(rests)]
