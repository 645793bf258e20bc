"""A route is quick while its requests that succeed are quick."""

from server.admission.latency_tracker import LatencyTracker

QUICK_S, SLOW_S = 0.0005, 0.04


def quick_tracker() -> LatencyTracker:
    tracker = LatencyTracker()
    for _ in range(8):
        tracker.record(QUICK_S)
    return tracker


def test_the_fastest_of_the_first_eight_requests_decides() -> None:
    tracker = LatencyTracker()
    for seconds in (*[SLOW_S] * 7, QUICK_S):
        assert not tracker.is_quick
        tracker.record(seconds)
    assert tracker.is_quick


def test_a_quick_failure_does_not_make_a_slow_route_quick() -> None:
    tracker = LatencyTracker()
    for _ in range(20):
        tracker.record(SLOW_S)
        tracker.record(QUICK_S, is_ok=False)
    assert not tracker.is_quick


def test_four_slow_requests_in_a_row_end_it_in_spite_of_failures_between() -> None:
    tracker = quick_tracker()
    for _ in range(4):
        assert tracker.is_quick
        tracker.record(SLOW_S)
        tracker.record(QUICK_S, is_ok=False)
    assert not tracker.is_quick


def test_one_very_slow_failure_ends_it() -> None:
    tracker = quick_tracker()
    tracker.record(0.05, is_ok=False)
    assert not tracker.is_quick
