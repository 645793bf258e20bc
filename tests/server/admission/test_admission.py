"""The server accepts requests up to its bound, and none while it drains."""

import threading

import pytest

from server.admission.admission import AdmissionController
from tpuserve.errors import Code, CodedError, InvalidSetting, Unavailable


def test_request_beyond_the_bound_is_refused_and_the_others_continue() -> None:
    admission = AdmissionController(2)
    admission.acquire()
    admission.acquire()
    with pytest.raises(
        CodedError,
        match="2 requests are in flight",
        check=lambda error: error.code is Code.RESOURCE_EXHAUSTED,
    ):
        admission.acquire()
    assert admission.in_flight == 2
    admission.release()
    admission.release()
    admission.acquire()
    assert admission.in_flight == 1


def test_peer_beyond_its_share_is_refused_and_other_peers_are_accepted() -> None:
    admission = AdmissionController(8, 2)
    admission.acquire("a")
    admission.acquire("a")
    with pytest.raises(
        CodedError,
        match="2 requests of a are in flight",
        check=lambda error: error.code is Code.RESOURCE_EXHAUSTED,
    ):
        admission.acquire("a")
    for peer in ("b", "", "", ""):
        admission.acquire(peer)
    admission.release("a")
    admission.acquire("a")
    assert admission.in_flight == 6


@pytest.mark.parametrize("bound", [None, 0])
def test_without_a_bound_any_number_is_accepted(bound: int | None) -> None:
    admission = AdmissionController(bound)
    for _ in range(1000):
        admission.acquire()
    assert admission.in_flight == 1000


def test_negative_bound_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="--max_requests_in_flight is -1"):
        AdmissionController(-1)


def test_draining_refuses_new_requests_and_waits_for_those_in_flight() -> None:
    admission = AdmissionController(1)
    admission.acquire()
    admission.drain()
    with pytest.raises(Unavailable):
        admission.acquire()
    assert not admission.wait_until_idle(0)
    threading.Timer(0.01, admission.release).start()
    assert admission.wait_until_idle(10)


def test_ready_means_started_and_not_draining() -> None:
    admission = AdmissionController()
    states = [admission.is_ready]
    admission.mark_ready()
    states.append(admission.is_ready)
    admission.drain()
    states.append(admission.is_ready)
    assert states == [False, True, False]
    assert admission.is_draining
