"""The limits of a model come from its configuration, else from the flags."""

from server.config.model_config import QueueLimits
from server.scheduling.run_limits import DEFAULT_CONCURRENT_RUNS, LimitTable, RunLimits


def test_limits_of_a_model_replace_those_of_the_flags() -> None:
    table = LimitTable(QueueLimits(3, 100, 2500))
    table.configure({"flags": QueueLimits(), "own": QueueLimits(5, 7, 250), "none": QueueLimits(0)})
    assert table.find("flags") == RunLimits(3, 100, 2.5)
    assert table.find("own") == RunLimits(5, 7, 0.25)
    assert table.find("none") == RunLimits(DEFAULT_CONCURRENT_RUNS, 100, 2.5)
    assert table.find("other") is None


def test_zero_means_no_limit() -> None:
    table = LimitTable(QueueLimits(0, 100, 2500))
    table.configure({"a": QueueLimits(max_queue=0, max_queue_ms=0)})
    assert table.find("a") == RunLimits(DEFAULT_CONCURRENT_RUNS, None, None)
    assert DEFAULT_CONCURRENT_RUNS >= 2


def test_requests_of_a_batched_model_only_wait() -> None:
    table = LimitTable(QueueLimits(2, 100, 0), max_waiting_for_batch=64)
    table.set_batched("a", True)
    table.configure({"a": QueueLimits(), "b": QueueLimits()})
    assert table.find("a") == RunLimits(64, 100, None, only_waits=True)
    assert table.find("b") == RunLimits(2, 100, None)
    table.set_batched("a", False)
    assert table.find("a") == RunLimits(2, 100, None)


def test_model_that_is_left_out_has_no_limits_any_more() -> None:
    table = LimitTable()
    table.configure({"a": QueueLimits()})
    table.configure({"b": QueueLimits()})
    assert table.find("a") is None
