"""An alarm calls its function at the earliest of the times that were set."""

import logging
import math
import threading
import time

import pytest

from server.process.alarm import Alarm

HANG_SECONDS = 30


class Bell:
    """A function for an alarm, which records when it was called."""

    def __init__(self, *next_times: float) -> None:
        self.calls: list[float] = []
        self.has_rung = threading.Semaphore(0)
        self._next_times = iter(next_times)

    def ring(self) -> float:
        self.calls.append(time.monotonic())
        self.has_rung.release()
        following = next(self._next_times, math.inf)
        if math.isnan(following):
            raise ValueError("on purpose")
        return following


def test_the_earliest_time_counts() -> None:
    bell = Bell()
    alarm = Alarm(bell.ring, "alarm")
    assert alarm.time == math.inf
    began = time.monotonic()
    for seconds in (3600, 0.05, 7200):
        alarm.set(began + seconds)
    assert alarm.time == began + 0.05
    alarm.start()
    assert bell.has_rung.acquire(timeout=HANG_SECONDS)
    alarm.close()
    assert len(bell.calls) == 1
    assert bell.calls[0] >= began + 0.05


def test_an_earlier_time_wakes_the_thread() -> None:
    bell = Bell()
    alarm = Alarm(bell.ring, "alarm")
    alarm.start()
    alarm.set(time.monotonic() + 3600)
    alarm.set(time.monotonic())
    assert bell.has_rung.acquire(timeout=HANG_SECONDS)
    alarm.close()


def test_the_function_chooses_the_time_of_its_next_call() -> None:
    bell = Bell(0, 0)
    alarm = Alarm(bell.ring, "alarm")
    alarm.set(0)
    alarm.start()
    for _ in range(3):
        assert bell.has_rung.acquire(timeout=HANG_SECONDS)
    alarm.close()
    assert alarm.time == math.inf


def test_an_error_of_the_function_is_logged_and_the_next_time_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bell = Bell(math.nan)
    alarm = Alarm(bell.ring, "alarm")
    alarm.start()
    for _ in range(2):
        alarm.set(0)
        assert bell.has_rung.acquire(timeout=HANG_SECONDS)
    alarm.close()
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert messages == ["a function that ends requests at their time limits has failed"]


def test_close_ends_an_alarm_that_was_never_started() -> None:
    Alarm(Bell().ring, "alarm").close()
