"""The number of batches in flight follows from the measured rows per second."""

from collections.abc import Callable

import pytest

from server.batching.run_limit import FixedRunLimit, MeasuredRunLimit


class Load:
    """Simulates runs of a model whose speed depends on the number of runs in flight."""

    def __init__(self, max_limit: int, rows_per_second: Callable[[int], float]) -> None:
        self.limit = MeasuredRunLimit(max_limit, "half/1")
        self.rows_per_second = rows_per_second
        self.now = 0.0
        self.limits: list[int] = []

    def run(self, seconds: float, rows: int = 4, is_saturated: bool = True) -> None:
        """Simulate some seconds in which runs of `rows` rows end one after another."""
        end = self.now + seconds
        while self.now < end:
            self.now += rows / self.rows_per_second(self.limit.limit)
            self.limit.run_ended(rows, self.now, is_saturated)
            if not self.limits or self.limits[-1] != self.limit.limit:
                self.limits.append(self.limit.limit)


# An experiment takes three measurements of 0.2 s each.
EXPERIMENT = 0.65


def test_the_limit_climbs_to_the_best_number_and_stays() -> None:
    load = Load(8, {1: 1000.0, 2: 1500.0, 3: 2000.0, 4: 1900.0}.__getitem__)
    load.run(10)
    # Each higher limit is tried between two measurements with the present limit: 1, 2, 1, then 2,
    # 3, 2.
    assert load.limits[:6] == [1, 2, 1, 2, 3, 2]
    assert set(load.limits) == {1, 2, 3, 4}
    assert load.limit.limit == 3


def test_a_gain_within_the_noise_changes_nothing() -> None:
    load = Load(2, {1: 1000.0, 2: 1040.0}.__getitem__)
    load.run(60)
    assert load.limits[-1] == 1


def test_experiments_without_a_gain_become_rare() -> None:
    load = Load(2, lambda limit: 1000.0)
    load.run(100)
    # The pauses are 1, 2, 4, 8, 16 and 32 s long.
    assert load.limits.count(2) == 7


def test_a_change_of_the_load_begins_the_next_experiment_at_once() -> None:
    load = Load(2, lambda limit: 1000.0)
    load.run(100)
    tries = load.limits.count(2)
    load.rows_per_second = {1: 1000.0, 2: 2000.0}.__getitem__
    load.run(2, rows=12)
    assert load.limits.count(2) > tries
    assert load.limit.limit == 2


def test_the_limit_falls_when_fewer_runs_are_faster() -> None:
    load = Load(4, lambda limit: 1000.0 * limit)
    load.run(10)
    assert load.limit.limit == 4
    load.rows_per_second = lambda limit: 4000.0 / limit
    load.run(200)
    assert load.limit.limit == 1


def test_an_idle_server_makes_no_experiments() -> None:
    load = Load(4, lambda limit: 1000.0 * limit)
    load.run(10, is_saturated=False)
    assert load.limits == [1]


def test_a_load_that_falls_during_an_experiment_is_no_gain() -> None:
    load = Load(2, lambda limit: 1000.0)
    load.run(EXPERIMENT / 3)
    assert load.limit.limit == 2
    # The first measurement with the limit 1 was at 1000 rows/s. The load changes now, so that the
    # limit 2 and the second measurement with the limit 1 both give 2000 rows/s.
    load.rows_per_second = lambda limit: 2000.0
    load.run(EXPERIMENT)
    assert load.limit.limit == 1


def test_a_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        Load(2, {1: 1000.0, 2: 1500.0}.__getitem__).run(1)
    (record,) = caplog.records
    assert record.getMessage() == (
        "half/1: batches in flight: 2 instead of 1, for 1500 instead of 1000 rows/s"
    )


def test_a_fixed_limit_stays() -> None:
    limit = FixedRunLimit(3)
    limit.run_ended(4, 1, True)
    assert (limit.limit, limit.max_limit, limit.inline_limit) == (3, 3, 3)
