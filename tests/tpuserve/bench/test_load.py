"""A closed loop waits for answers; an open loop does not, and counts from when requests are due."""

import asyncio
import itertools
import time
from array import array

import numpy as np
import pytest
from rich.console import Console

from tpuserve.bench import load, rendering, windows
from tpuserve.bench.load import Load, LoadGenerator, Samples, arrival_times
from tpuserve.bench.sender import Sender
from tpuserve.bench.windows import Procedure, Window, is_stable
from tpuserve.errors import ServerFailure

SECONDS = 60


class GatedSender(Sender):
    """Answers no request before the gate is opened."""

    def __init__(self, error: str = "") -> None:
        self.started_indices: list[int] = []
        self.gate = asyncio.Event()
        self.error = error

    async def send(self, index: int) -> str:
        self.started_indices.append(index)
        await self.gate.wait()
        await asyncio.sleep(0)
        return self.error

    async def close(self) -> None:
        pass


class OpenSender(GatedSender):
    def __init__(self, error: str = "") -> None:
        super().__init__(error)
        self.gate.set()


class StallingSender(GatedSender):
    """Stops the whole process during the first request, as a server that stalls."""

    async def send(self, index: int) -> str:
        if index == 0:
            time.sleep(0.3)
        return ""


async def until(condition: "object") -> None:
    assert callable(condition)
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


def test_a_closed_loop_has_one_request_per_client() -> None:
    async def run() -> None:
        sender = GatedSender()
        async with LoadGenerator(sender, Load(concurrency=3)) as running:
            await until(lambda: len(sender.started_indices) == 3)
            await asyncio.sleep(0.05)
            assert sorted(sender.started_indices) == [0, 1, 2]
            sender.gate.set()
            await until(lambda: len(running.samples.latencies_s) >= 9)
            # Each client takes every third request.
            assert set(range(9)) <= set(sender.started_indices)

    asyncio.run(run())


def test_an_open_loop_sends_while_nothing_is_answered() -> None:
    async def run() -> None:
        sender = GatedSender()
        async with LoadGenerator(sender, Load(rate=1000)) as running:
            await until(lambda: len(sender.started_indices) >= 50)
            assert len(running.samples.latencies_s) == 0
        assert sender.started_indices[:50] == list(range(50))

    asyncio.run(run())


def test_requests_that_are_due_during_a_stall_count_from_then() -> None:
    async def run() -> None:
        async with LoadGenerator(StallingSender(), Load(rate=100)) as running:
            await until(lambda: len(running.samples.latencies_s) >= 20)
            latencies = running.samples.latencies_s
        # Request n is due after n * 10 ms, and sent after 300 ms at the earliest.
        for position in range(20):
            assert latencies[position] >= 0.3 - position * 0.01 - 0.001

    asyncio.run(run())


def test_an_open_loop_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "MAX_WAITING", 10)

    async def run() -> None:
        sender = GatedSender()
        async with LoadGenerator(sender, Load(rate=10_000)) as running:
            await until(lambda: running.samples.num_errors >= 5)
        assert len(sender.started_indices) == 10
        assert running.samples.first_error == "not sent: 10 requests wait for an answer"

    asyncio.run(run())


def test_a_fault_of_a_sender_is_raised() -> None:
    class Faulty(GatedSender):
        async def send(self, index: int) -> str:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(windows.measure(Faulty(), Load(concurrency=1), Procedure(0.01, 3)))


def test_arrivals_have_the_rate() -> None:
    assert list(itertools.islice(arrival_times(4, False), 4)) == [0, 0.25, 0.5, 0.75]
    random = list(itertools.islice(arrival_times(100, True), 10_001))
    assert random == list(itertools.islice(arrival_times(100, True), 10_001))
    gaps = np.diff(random)
    assert gaps.mean() == pytest.approx(0.01, rel=0.05)
    # The standard deviation of exponential gaps is their mean.
    assert gaps.std() == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(
    ("rates", "latencies", "expected"),
    [
        ([100, 100], [1, 1], False),
        ([50, 100, 105, 95], [9, 1, 1, 1], True),
        ([100, 100, 130], [1, 1, 1], False),
        ([100, 100, 100], [1, 1, 1.4], False),
        ([0, 0, 0], [float("nan")] * 3, False),
    ],
)
def test_three_windows_in_a_row_agree_within_the_tolerance(
    rates: list[float], latencies: list[float], expected: bool
) -> None:
    series = [Window(*window) for window in zip(rates, latencies, strict=True)]
    assert is_stable(series, 0.1) is expected


def test_samples_are_taken_once() -> None:
    samples = Samples()
    samples.add(0.5, "")
    samples.add(0.1, "first")
    samples.add(0.1, "second")
    assert samples.take() == Samples(array("d", [0.5]), 2, "first")
    assert samples.take() == Samples()


def test_a_result_is_that_of_the_last_three_windows() -> None:
    counts: list[int] = []

    async def run() -> windows.Result:
        procedure = Procedure(window_s=0.05, max_windows=5, tolerance=1e-9, warm_up_s=0)
        return await windows.measure(OpenSender(), Load(concurrency=2), procedure, counts.append)

    result = asyncio.run(run())
    assert not result.is_stable
    assert counts == [1, 2, 3, 4, 5]
    assert len(result.windows) == 5
    last = result.windows[-3:]
    assert min(window.requests_per_second for window in last) <= result.requests_per_second
    assert result.requests_per_second <= max(window.requests_per_second for window in last)
    values = list(result.percentiles_ms.values())
    assert values == sorted(values)
    assert result.num_errors == 0


def test_some_errors_are_counted_and_the_first_is_named() -> None:
    class AlternatingSender(OpenSender):
        async def send(self, index: int) -> str:
            await asyncio.sleep(0)
            return "busy" if index % 2 else ""

    async def run() -> windows.Result:
        procedure = Procedure(window_s=0.05, max_windows=3, tolerance=1e-9, warm_up_s=0)
        return await windows.measure(AlternatingSender(), Load(concurrency=1), procedure)

    result = asyncio.run(run())
    assert result.num_errors > 0
    assert result.num_requests > 0
    assert result.first_error == "busy"
    with Console(width=100) as console, console.capture() as captured:
        rendering.print_results([result], console)
    assert "note: concurrency 1: busy\n" in captured.get()
    assert "note: concurrency 1: not stable after 3 windows\n" in captured.get()


def test_a_load_whose_requests_all_fail_is_an_error() -> None:
    async def run() -> windows.Result:
        procedure = Procedure(window_s=0.05, warm_up_s=0.01)
        return await windows.measure(OpenSender("refused."), Load(concurrency=1), procedure)

    with pytest.raises(ServerFailure, match="no request with concurrency 1 was answered: refused."):
        asyncio.run(run())


def test_a_load_without_any_answer_is_an_error() -> None:
    async def run() -> windows.Result:
        procedure = Procedure(window_s=0.01, max_windows=2, warm_up_s=0)
        return await windows.measure(GatedSender(), Load(concurrency=1), procedure)

    with pytest.raises(ServerFailure, match="no request with concurrency 1 was answered within"):
        asyncio.run(run())
