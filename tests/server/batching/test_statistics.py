"""The statistics show the sizes of batches, the waits of requests, and why some ran alone."""

import pytest

from server.batching.statistics import BatchingStatistics
from server.batching.tasks import AloneReason


def test_numbers_are_those_of_the_batches() -> None:
    statistics = BatchingStatistics("half/1", "continuous")
    statistics.read_runs = lambda: (1, 2)
    statistics.set_unbatched({"softmax": "its rows depend on each other"})
    statistics.batch_ran(1, 0, [0.0], AloneReason.IDLE, 0)
    statistics.batch_ran(3, 1, [0.001, 0.002, 0.003], AloneReason.ONLY_ONE, 1)
    statistics.batch_ran(5, 3, [0.004], AloneReason.FULL, 2)
    statistics.count_unbatched()
    snapshot = statistics.snapshot()
    alone = snapshot.pop("alone")
    assert {reason: count for reason, count in alone.items() if count} == {
        "idle_server": 1,
        "next_did_not_fit": 1,
        "signature_not_batchable": 1,
    }
    assert snapshot == {
        "policy": "continuous",
        "requests": 5,
        "batches": 3,
        "rows": 9,
        "padding_rows": 4,
        "batch_sizes": {"1": 1, "3-4": 1, "5-8": 1},
        "mean_queue_us": 2000,
        "max_queue_us": 4000,
        "runs_in_flight": 1,
        "max_runs_in_flight": 2,
        "unbatched_signatures": {"softmax": "its rows depend on each other"},
    }


def test_runs_that_succeed_are_counted_by_their_rows() -> None:
    statistics = BatchingStatistics("half/1", "continuous")
    for rows, run_ns in ((3, 100), (5, 40), (3, 20)):
        statistics.run_succeeded(rows, run_ns)
    assert statistics.runs() == {3: (2, 120), 5: (1, 40)}


def test_the_log_says_once_a_minute_what_happened_since(caplog: pytest.LogCaptureFixture) -> None:
    statistics = BatchingStatistics("half/1", "continuous")
    statistics.read_runs = lambda: (1, 2)
    with caplog.at_level("INFO"):
        for second in range(0, 130, 10):
            statistics.batch_ran(2, 0, [0.001, 0.003], AloneReason.ONLY_ONE, second)
    assert [record.getMessage() for record in caplog.records] == [
        "half/1: in the last 60 s 14 requests ran in 7 batches, 2.0 per batch, after 2.0 ms in the "
        "queue on average; up to 2 batches run at the same time",
        "half/1: in the last 60 s 12 requests ran in 6 batches, 2.0 per batch, after 2.0 ms in the "
        "queue on average; up to 2 batches run at the same time",
    ]
