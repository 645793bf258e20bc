"""Collects the metrics of all processes of a server, so that each frontend can serve them."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from server.metrics import Metrics, family
from server.metrics.family import Snapshot
from server.multiprocess.supervised_process import SupervisedProcess

# The longest time, in seconds, that the supervisor waits for the metrics of the other processes. If
# a process does not answer in time, for example because it loads a model, its last known metrics
# are used.
_COLLECT_SECONDS = 2.0
# The longest time, in seconds, that a frontend process waits for the metrics from the supervisor.
# The supervisor is never busy for long, so its answer usually arrives within little more than
# _COLLECT_SECONDS. Without an answer, the frontend process serves only its own metrics.
_SUPERVISOR_SECONDS = 10.0
# The types of metrics that are meaningless after the end of their process: gauges and recent error
# messages. Only counters and histograms of an ended process are kept.
_PROCESS_TYPES = ("gauge", family.EVENTS)


class ServerMetrics(Metrics):
    """The metrics of a frontend process.

    `collect` returns the metrics of all processes of the server, added up.
    """

    def __init__(self, ask: Callable[[int], None]) -> None:
        """Create the metrics.

        Args:
          ask: takes a new number, and sends the supervisor a request for the metrics of all
            processes. The answer has the same number, and is passed to `receive`.
        """
        super().__init__()
        self._ask = ask
        self._numbers = itertools.count(1)
        self._waiting: dict[int, list[Any]] = {}
        self._condition = threading.Condition()

    def receive(self, number: int, families: Snapshot) -> None:
        """Pass an answer of the supervisor to the thread that waits for it in `collect`.

        Args:
          number: the number that was passed to `ask`.
          families: the metrics of all processes, added up.
        """
        with self._condition:
            if number in self._waiting:
                self._waiting[number].append(families)
                self._condition.notify_all()

    def first_value(self, name: str) -> int | None:
        """Return the value of a counter, added up over all processes.

        A counter has one series for each combination of label values. If there are several series,
        the result is the value of the first series in sorted order. The result is None if no
        counter has this name.
        """
        for metric in self.collect():
            if metric.name == name and metric.metric_type == "counter":
                value = metric.values[min(metric.values)] if metric.values else 0
                return int(value) if not isinstance(value, tuple) else None
        return None

    def collect(self) -> Snapshot:
        """Ask the supervisor for the metrics of all processes, and return them, added up."""
        number = next(self._numbers)
        with self._condition:
            answers = self._waiting[number] = []
            self._ask(number)
            self._condition.wait_for(lambda: answers, _SUPERVISOR_SECONDS)
            del self._waiting[number]
        # If the supervisor has not answered, serve at least the metrics of this process.
        return answers[0] if answers else self.snapshot()


@dataclass
class _Collection:
    """A frontend process's request for the metrics of all processes, which is not answered yet."""

    asker: SupervisedProcess
    number: int
    missing: set[SupervisedProcess]
    deadline: float


class MetricsCollector:
    """Collects, in the supervisor, the metrics of the processes of a server.

    The counters of a process that has ended are kept, so that the counters of the server never
    decrease.
    """

    def __init__(self) -> None:
        """Create a collector without metrics."""
        self._latest: dict[SupervisedProcess, Snapshot] = {}
        self._ended: Snapshot = ()
        self._collections: list[_Collection] = []

    @property
    def deadlines(self) -> list[float]:
        """The times at which the supervisor must call `answer`, by the clock `time.monotonic`."""
        return [collection.deadline for collection in self._collections]

    def begin(
        self, asker: SupervisedProcess, number: int, processes: Iterable[SupervisedProcess]
    ) -> None:
        """Begin to answer a frontend process: ask all processes for their metrics.

        Args:
          asker: the frontend process that has asked for the metrics.
          number: the number of this request, which is sent back with the answer.
          processes: the processes of the server.
        """
        missing = set(processes)
        for process in missing:
            process.send("snapshot")
        deadline = time.monotonic() + _COLLECT_SECONDS
        self._collections.append(_Collection(asker, number, missing, deadline))

    def update(self, process: SupervisedProcess, snapshot: Snapshot) -> None:
        """Record the metrics that a process has sent.

        Then answer each frontend process whose request waited only for these metrics.
        """
        self._latest[process] = snapshot
        for collection in self._collections:
            collection.missing.discard(process)
        self.answer()

    def end(self, process: SupervisedProcess) -> None:
        """Record that a process has ended: keep its counters and histograms, but not its gauges."""
        counts = [
            metric
            for metric in self._latest.pop(process, ())
            if metric.metric_type not in _PROCESS_TYPES
        ]
        self._ended = family.add_up([self._ended, counts])
        for collection in self._collections:
            collection.missing.discard(process)
        self.answer()

    def answer(self) -> None:
        """Answer each frontend process whose request is complete or past its deadline.

        A request is complete when all processes have sent their metrics or have ended.
        """
        now = time.monotonic()
        for collection in list(self._collections):
            if not collection.missing or collection.deadline <= now:
                self._collections.remove(collection)
                total = family.add_up([self._ended, *self._latest.values()])
                collection.asker.send("collected", (collection.number, total))
