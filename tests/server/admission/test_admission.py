"""A server takes on as much as it may, and nothing once it drains."""

import threading

import pytest

from server.admission.admission import Limits
from tpuserve.errors import InvalidSetting, TooManyRequests, Unavailable


def test_one_request_more_than_may_be_is_refused_and_the_others_are_unharmed() -> None:
    limits = Limits(2)
    with limits.request(), limits.request():
        with pytest.raises(TooManyRequests, match="2 requests are in flight"):
            limits.enter()
        assert limits.in_flight == 2
    with limits.request():
        assert limits.in_flight == 1


@pytest.mark.parametrize("bound", [None, 0])
def test_without_a_bound_any_number_is_taken(bound: int | None) -> None:
    limits = Limits(bound)
    for _ in range(1000):
        limits.enter()
    assert limits.in_flight == 1000


def test_negative_bound_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="--max_requests_in_flight is -1"):
        Limits(-1)


def test_request_that_fails_is_in_flight_no_longer() -> None:
    limits = Limits(1)
    with pytest.raises(KeyError), limits.request():
        raise KeyError
    assert limits.in_flight == 0


def test_draining_refuses_new_requests_and_waits_for_those_in_flight() -> None:
    limits = Limits(1)
    limits.enter()
    limits.drain()
    with pytest.raises(Unavailable), limits.request():
        pass
    assert not limits.wait_until_idle(0)
    threading.Timer(0.01, limits.leave).start()
    assert limits.wait_until_idle(10)


def test_ready_means_serving_and_not_draining() -> None:
    limits = Limits()
    states = [limits.is_ready]
    limits.serve()
    states.append(limits.is_ready)
    limits.drain()
    states.append(limits.is_ready)
    assert states == [False, True, False]
    assert limits.is_draining
