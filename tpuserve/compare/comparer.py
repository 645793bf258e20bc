"""Sends requests to both sides of a comparison, and compares the answers in order."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tpuserve.compare.output_files import OutputFiles
from tpuserve.compare.report import Report
from tpuserve.compare.requests import Request, Requests
from tpuserve.compare.result import Result, Tolerances, compare_answers
from tpuserve.compare.side import Answer, Side, SideClient, check_signatures
from tpuserve.errors import InvalidInput, ServerUnreachable

_LEAST_PART_OF_RATE = 0.9

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Procedure:
    """How the requests are sent and compared.

    Attributes:
      concurrency: the largest number of requests under way on each side.
      rate: the requests per second; None to send the next request when one is answered.
    """

    concurrency: int = 1
    rate: float | None = None
    tolerances: Tolerances = field(default_factory=Tolerances)


def compare(
    baseline: Side,
    candidate: Side,
    requests: Requests,
    procedure: Procedure,
    outputs: Path | None = None,
    progress: Progress = lambda done, total, step: None,
) -> Report:
    """Send requests to both sides, and compare the answers.

    If a server stops to answer, the report has the requests before that, and its `failure`.

    Args:
      outputs: the directory of the results, where a later call continues; None to write no files.
      progress: takes the number of compared requests, the number of all requests, and a
        description of the current step.

    Raises:
      InvalidInput: there are no requests, the signatures of the sides differ, or no request is
        answered.
      ServerUnreachable: a server does not answer the first request.
    """
    progress(0, 0, "reading the requests")
    signatures: set[str] = set()
    total = 0
    for request in requests:
        signatures.update(request.signatures)
        total += 1
    report = Report(baseline, candidate, dict(requests.left_out), tuple(requests.damages))
    if not total:
        raise InvalidInput(_describe_empty(report))
    run = _Run(report, requests, total, signatures, procedure, progress)
    if outputs is None:
        asyncio.run(run.compare(None))
    else:
        description = {
            "baseline": str(baseline),
            "candidate": str(candidate),
            "atol": dict(procedure.tolerances.atol),
            "rtol": dict(procedure.tolerances.rtol),
            "signatures": sorted(requests.signatures),
            "source": [(source.name, source.size) for source in requests.sources],
        }
        with OutputFiles(outputs, description) as files:
            asyncio.run(run.compare(files))
            files.write_report(report.to_dict())
    if not report.num_answered:
        raise InvalidInput(
            f"both sides refuse all {report.num_requests} requests, so that no answers are "
            f"compared: {report.first_error} Give requests that the model accepts."
        )
    return report


class _Run:
    def __init__(
        self,
        report: Report,
        requests: Iterable[Request],
        total: int,
        signatures: set[str],
        procedure: Procedure,
        progress: Progress,
    ) -> None:
        self._report = report
        self._requests = requests
        self._total = total
        self._signatures = signatures
        self._procedure = procedure
        self._progress = progress

    async def compare(self, files: OutputFiles | None) -> None:
        """Compare the answers to all requests that an earlier run has not compared."""
        report = self._report
        for result in files.read_results() if files else ():
            report.add(result)
        report.num_earlier = report.num_requests
        if report.num_requests == self._total:
            return
        clients = [SideClient(side) for side in report.sides]
        try:
            baseline, candidate = [await client.signatures() for client in clients]
            are_all_described = all(side.api == "v1" for side in report.sides)
            check_signatures(baseline, candidate, self._signatures, are_all_described)
            begin = time.perf_counter()
            async with aclosing(self._results(clients, report.num_earlier)) as results:
                async for result, request in results:
                    report.add(result)
                    if files:
                        files.write(result, request)
                    differing = f"{report.num_differing} differ"
                    self._progress(report.num_requests, self._total, differing)
            self._check_rate(time.perf_counter() - begin)
        except ServerUnreachable as error:
            if not report.num_requests:
                raise
            report.failure = f"{error} {report.num_requests} of {self._total} requests are compared"
            report.failure += ": the same command continues." if files else "."
        finally:
            for client in clients:
                await client.close()

    def _check_rate(self, seconds: float) -> None:
        rate, sent = self._procedure.rate, self._report.num_requests - self._report.num_earlier
        if rate is not None and sent / seconds < _LEAST_PART_OF_RATE * rate:
            self._report.notes += (
                f"{sent / seconds:.0f} requests/s were sent and not {rate:g}, because at most "
                f"{self._procedure.concurrency} are under way at a time",
            )

    async def _results(
        self, clients: Sequence[SideClient], start: int
    ) -> AsyncGenerator[tuple[Result, Request], None]:
        """Send the requests from number `start`, and yield their results in order."""
        window: deque[asyncio.Task[tuple[Result, Request]]] = deque()
        concurrency, rate = self._procedure.concurrency, self._procedure.rate
        begin = time.perf_counter()
        try:
            for number, request in enumerate(islice(self._requests, start, None), start):
                if rate is not None:
                    due = begin + (number - start) / rate
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                while window and (window[0].done() or len(window) == concurrency):
                    yield await window.popleft()
                window.append(asyncio.create_task(self._compare(clients, number, request)))
            while window:
                yield await window.popleft()
        finally:
            for task in window:
                task.cancel()
            await asyncio.gather(*window, return_exceptions=True)

    async def _compare(
        self, clients: Sequence[SideClient], number: int, request: Request
    ) -> tuple[Result, Request]:
        # Send to each side first in turn, so that the order favours neither.
        order = clients if number % 2 == 0 else clients[::-1]
        answers: list[Answer] = []
        for answer in await asyncio.gather(
            *(client.send(request) for client in order), return_exceptions=True
        ):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
        baseline, candidate = answers if number % 2 == 0 else answers[::-1]
        tolerances = self._procedure.tolerances
        is_same_protocol = len({side.protocol for side in self._report.sides}) == 1
        result = compare_answers(number, request, baseline, candidate, tolerances, is_same_protocol)
        return result, request


def _describe_empty(report: Report) -> str:
    reasons = [f"{count} of {reason}" for reason, count in report.left_out.items()]
    found = "; ".join([*reasons, *report.notes]) or "no record"
    return (
        f"there is no request to send to model {report.baseline.model.name!r}; found {found}. Give "
        f"a file of PredictionLog records, and the name of the model in it as --model."
    )
