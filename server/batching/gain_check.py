"""Measures, when a model is loaded, whether it answers requests faster in batches."""

import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from server.servables.servable import Array

RunRows: TypeAlias = Callable[[Mapping[str, Array]], object]
"""Runs a model on some rows: input alias → [rows, ...]."""

_ROWS = 8
# A batch costs this much processor time for each request: queues, and a change of threads.
# `python -m benchmarks.serve.settings.batching --layers 1 2 4 8` measures from where they pay.
_LEAST_SECONDS_SAVED = 2e-4
# The longest measurement of one signature, in seconds.
_SECONDS = 0.5
_MOST_TURNS = 8
# Batches of rows with more elements than this would need much memory and save little.
_MOST_ELEMENTS = 1 << 20


def find_no_gain(
    run: RunRows, rows: Mapping[str, Array], clock: Callable[[], float] = time.perf_counter
) -> str:
    """Return why a model should not get several requests in a batch; "" if it should.

    Args:
      rows: valid inputs: alias → [rows, ...].
      clock: returns seconds, as `time.perf_counter` does.
    """
    one = {alias: array[:1] for alias, array in rows.items()}
    elements = sum(array.size for array in one.values())
    if elements > _MOST_ELEMENTS:
        return f"a row has {elements} elements, more than {_MOST_ELEMENTS}"

    def seconds(inputs: Mapping[str, Array]) -> float:
        begin = clock()
        run(inputs)
        return clock() - begin

    end = clock() + _SECONDS
    run(one)
    alone = min(seconds(one) for _ in range(3))
    if alone < _LEAST_SECONDS_SAVED:
        return f"a run takes {1000 * alone:.2f} ms, which a batch cannot shorten"
    several = {alias: np.repeat(array, _ROWS, axis=0) for alias, array in one.items()}
    run(several)
    together = seconds(several)
    for _ in range(_MOST_TURNS):
        if clock() > end:
            break
        alone, together = min(alone, seconds(one)), min(together, seconds(several))
    if alone - together / _ROWS < _LEAST_SECONDS_SAVED:
        return (
            f"{_ROWS} rows take {1000 * together:.2f} ms in a batch, and "
            f"{1000 * _ROWS * alone:.2f} ms one by one"
        )
    return ""
