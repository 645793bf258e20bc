"""Measures a load on a server in time windows until the measurement is stable.

A measurement is stable when three windows in a row have about the same throughput and latency; its
result is the summary of these windows.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tpuserve.bench.load import Load, LoadGenerator, Samples
from tpuserve.bench.sender import Sender
from tpuserve.errors import ServerFailure

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
NUM_STABLE = 3
"""The number of windows in a row that have to agree."""


@dataclass(frozen=True)
class Procedure:
    """The settings of a measurement, which consists of time windows of equal length.

    Attributes:
      tolerance: the largest relative deviation of the last three windows from their mean, such as
        0.1 for 10 %. It applies to the requests per second and to the mean latency.
      warm_up_s: the time for which requests are sent before the first window, in seconds.
    """

    window_s: float = 2.0
    max_windows: int = 10
    tolerance: float = 0.1
    warm_up_s: float = 1.0


@dataclass(frozen=True)
class Window:
    """The throughput and latency in one time window of a measurement.

    Attributes:
      mean_ms: the mean latency of successful requests in milliseconds; NaN if there are none.
    """

    requests_per_second: float
    mean_ms: float


@dataclass(frozen=True)
class Result:
    """The measurement of a load: its last three time windows together.

    Attributes:
      mean_ms: the mean latency of successful requests in milliseconds.
      percentiles_ms: percentile, such as 99.9 → latency in milliseconds.
      first_error: the error text of the first failed request; "" if none failed.
    """

    load: Load
    requests_per_second: float
    mean_ms: float
    percentiles_ms: dict[float, float]
    num_requests: int
    num_errors: int
    first_error: str
    is_stable: bool
    windows: tuple[Window, ...]


def is_stable(windows: Sequence[Window], tolerance: float) -> bool:
    """Return whether the throughput and latency of the last three windows agree.

    Args:
      tolerance: the largest relative deviation from the mean of the three windows.
    """
    last = windows[-NUM_STABLE:]
    if len(last) < NUM_STABLE:
        return False
    for values in (
        [window.requests_per_second for window in last],
        [window.mean_ms for window in last],
    ):
        mean = sum(values) / len(values)
        # Do not write `any(... > ...)`: the mean latency of a window without requests is NaN, and
        # any comparison with NaN is false, so such a window would count as stable.
        if not all(abs(value - mean) <= tolerance * mean for value in values):
            return False
    return True


async def measure(
    sender: Sender,
    load: Load,
    procedure: Procedure,
    on_window: Callable[[int], None] = lambda count: None,
    advice: str = "",
) -> Result:
    """Send the requests of a load until the measurement is stable or the last window has passed.

    Args:
      procedure: the length and the largest number of time windows, and the tolerance.
      advice: a sentence for the error if no request is answered successfully; "" for none.
    """
    windows: list[Window] = []
    all_samples: list[Samples] = []
    lengths: list[float] = []
    async with LoadGenerator(sender, load) as generator:
        await asyncio.sleep(procedure.warm_up_s)
        warm_up = generator.samples.take()
        is_answered = bool(warm_up.latencies_s)
        started = time.perf_counter()
        while len(windows) < procedure.max_windows and not is_stable(windows, procedure.tolerance):
            await asyncio.sleep(procedure.window_s)
            generator.raise_failure()
            samples, ended = generator.samples.take(), time.perf_counter()
            error = samples.first_error or warm_up.first_error
            is_answered = is_answered or bool(samples.latencies_s)
            if error and not is_answered:
                raise ServerFailure(
                    f"no request with {load} was answered: {error} {advice}".strip()
                )
            windows.append(_summarise(samples, ended - started))
            all_samples.append(samples)
            lengths.append(ended - started)
            started = ended
            on_window(len(windows))
    if not is_answered:
        raise ServerFailure(
            f"no request with {load} was answered within {sum(lengths):g} s, and none has failed. "
            f"Wait for longer with a larger --window or --max-windows, or look at the server's log."
        )
    return _result(load, windows, all_samples, lengths, procedure.tolerance)


def _summarise(samples: Samples, length_s: float) -> Window:
    latencies = np.asarray(samples.latencies_s)
    mean_ms = float(latencies.mean()) * 1e3 if len(latencies) else float("nan")
    return Window(len(latencies) / length_s, mean_ms)


def _result(
    load: Load,
    windows: list[Window],
    all_samples: list[Samples],
    lengths: list[float],
    tolerance: float,
) -> Result:
    last = all_samples[-NUM_STABLE:]
    latencies_ms = np.concatenate([np.asarray(samples.latencies_s) for samples in last]) * 1e3
    is_empty = not len(latencies_ms)
    percentiles = {
        percentile: float("nan") if is_empty else float(np.percentile(latencies_ms, percentile))
        for percentile in PERCENTILES
    }
    return Result(
        load=load,
        requests_per_second=len(latencies_ms) / sum(lengths[-NUM_STABLE:]),
        mean_ms=float("nan") if is_empty else float(latencies_ms.mean()),
        percentiles_ms=percentiles,
        num_requests=len(latencies_ms),
        num_errors=sum(samples.num_errors for samples in last),
        first_error=next((samples.first_error for samples in last if samples.first_error), ""),
        is_stable=is_stable(windows, tolerance),
        windows=tuple(windows),
    )
