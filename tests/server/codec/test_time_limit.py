"""The parameter `timeout` of an infer request counts from the arrival of the request."""

import math
import time

import pytest

from server.codec.infer_request import limit_time
from server.metrics.timeline import Timeline
from server.request import RequestContext
from tpuserve.errors import DeadlineExceeded


def arrived(seconds_ago: float, deadline: float = math.inf) -> RequestContext:
    started_ns = time.perf_counter_ns() - int(seconds_ago * 1e9)
    return RequestContext(deadline, timeline=Timeline(started_ns))


@pytest.mark.parametrize("timeout_us", [None, 0])
def test_without_the_parameter_the_other_limits_apply(timeout_us: int | None) -> None:
    context = arrived(0)
    assert limit_time(context, timeout_us) is context


def test_the_earlier_deadline_applies() -> None:
    now = time.monotonic()
    soon = arrived(100, now + 7)
    assert limit_time(soon, 200_000_000) is soon
    limited = limit_time(arrived(100, now + 950), 1_000_000_000)
    assert now + 899 < limited.deadline < now + 950


def test_a_request_whose_time_has_passed_is_refused() -> None:
    with pytest.raises(DeadlineExceeded, match=r"has passed, 2\d{3} ms after its arrival"):
        limit_time(arrived(2), 1_500_000)
