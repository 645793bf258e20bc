"""A signature is batched by itself only if rows take less time together than one by one."""

from collections.abc import Mapping

import numpy as np
import pytest

from server.batching.gain_check import find_no_gain
from server.servables.servable import Array


def no_gain(seconds: float, seconds_per_row: float, row: tuple[int, ...] = (2,)) -> str:
    """Return the reason for a model whose run takes `seconds`, and so much more for each row."""
    now = 0.0

    def run(inputs: Mapping[str, Array]) -> None:
        nonlocal now
        now += seconds + seconds_per_row * len(inputs["x"])

    return find_no_gain(run, {"x": np.zeros((3, *row), np.float32)}, lambda: now)


def test_a_run_that_costs_more_than_its_rows_is_shared() -> None:
    assert no_gain(0.001, 0.0001) == ""


def test_rows_that_take_as_long_together_are_not() -> None:
    assert no_gain(0.0001, 0.002) == "8 rows take 16.10 ms in a batch, and 16.80 ms one by one"


def test_a_run_that_is_shorter_than_the_work_of_a_batch_is_not() -> None:
    assert no_gain(0.0001, 0.00005) == "a run takes 0.15 ms, which a batch cannot shorten"


def test_rows_that_would_fill_the_memory_are_never_run() -> None:
    assert no_gain(pytest.fail, 0, (1025, 1024)) == (  # type: ignore[arg-type]
        "a row has 1049600 elements, more than 1048576"
    )


def test_a_slow_model_is_run_a_few_times_only() -> None:
    runs: list[int] = []
    now = 0.0

    def run(inputs: Mapping[str, Array]) -> None:
        nonlocal now
        runs.append(len(inputs["x"]))
        now += 0.2

    assert find_no_gain(run, {"x": np.zeros(3, np.float32)}, lambda: now) == ""
    assert runs == [1, 1, 1, 1, 8, 8]
