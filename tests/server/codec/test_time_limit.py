"""The parameter `timeout` of an infer request counts from the arrival of the request."""

import time

import pytest

from server.codec.open_inference.time_limit import limit_remaining_ms
from tpuserve.errors import DeadlineExceeded

SECOND_NS = 10**9


@pytest.mark.parametrize("timeout_us", [None, 0])
@pytest.mark.parametrize("remaining_ms", [None, 7.0])
def test_without_the_parameter_the_other_limits_apply(
    remaining_ms: float | None, timeout_us: int | None
) -> None:
    assert limit_remaining_ms(remaining_ms, timeout_us, 0) == remaining_ms


def test_the_smaller_limit_applies_after_the_time_that_has_passed() -> None:
    received_ns = time.perf_counter_ns() - 100 * SECOND_NS
    assert limit_remaining_ms(7, 200_000_000, received_ns) == 7
    remaining_ms = limit_remaining_ms(None, 1_000_000_000, received_ns)
    assert remaining_ms is not None
    assert 800_000 < remaining_ms <= 900_000
    assert (limit_remaining_ms(950_000, 1_000_000_000, received_ns) or 0) <= 900_000


def test_a_request_whose_time_has_passed_is_refused() -> None:
    received_ns = time.perf_counter_ns() - 2 * SECOND_NS
    text = r"the parameter timeout is 1500000 microseconds, and 2\d{3} ms had passed before the mod"
    with pytest.raises(DeadlineExceeded, match=text):
        limit_remaining_ms(None, 1_500_000, received_ns)
