"""The time that is left of a limit is more than 0, or the request ends."""

import time

import pytest

from server.admission.time_limit import remaining_ms
from tpuserve.errors import DeadlineExceeded


def test_the_elapsed_time_counts() -> None:
    left_ms = remaining_ms(300_000, time.monotonic() - 100)
    assert left_ms is not None
    assert 150_000 <= left_ms <= 200_000


def test_a_request_whose_time_is_over_runs_nothing() -> None:
    with pytest.raises(DeadlineExceeded, match=r"the time limit of 50000 ms has passed before the"):
        remaining_ms(50_000, time.monotonic() - 100)


def test_no_limit_stays_none() -> None:
    assert remaining_ms(None, time.monotonic()) is None
