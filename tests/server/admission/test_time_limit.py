"""The time that is left of a limit is never less than 1 ms."""

import time

import pytest

from server.admission.time_limit import remaining_ms


@pytest.mark.parametrize(
    ("timeout_ms", "elapsed_seconds", "least", "most"),
    [(300_000, 100, 150_000, 200_000), (50_000, 100, 1, 1)],
)
def test_the_elapsed_time_counts(
    timeout_ms: float, elapsed_seconds: float, least: float, most: float
) -> None:
    left_ms = remaining_ms(timeout_ms, time.monotonic() - elapsed_seconds)
    assert left_ms is not None
    assert least <= left_ms <= most


def test_no_limit_stays_none() -> None:
    assert remaining_ms(None, time.monotonic()) is None
