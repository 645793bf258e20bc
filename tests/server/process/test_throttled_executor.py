"""What is done in the background goes after all else, once there is something else."""

import os
import sys
import threading

import pytest

from server.process.throttled_executor import Background


def priority() -> tuple[str, int]:
    return threading.current_thread().name, os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads have none elsewhere")
def test_work_goes_last_from_the_first_request_on() -> None:
    here = priority()
    aside = Background(1)
    assert aside(priority) == here
    aside.begin()
    name, nice = aside(priority)
    assert name.startswith("background")
    assert nice >= min(10 + here[1], 10)
    assert priority() == here


def test_error_of_the_work_is_the_callers() -> None:
    aside = Background(1)
    aside.begin()
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 // 0)


@pytest.mark.parametrize(("processors", "rests"), [(2, 0.03), (4, 0.01), (8, 0), (64, 0)])
def test_an_eighth_of_the_machine_works_at_most(processors: int, rests: float) -> None:
    slept: list[float] = []
    times = iter([1.0, 1.01])
    aside = Background(1, processors, clock=lambda: next(times), sleep=slept.append)
    aside.begin()
    assert aside(lambda: "done") == "done"
    assert slept == [pytest.approx(rests)]
