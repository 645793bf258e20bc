"""The metrics of all processes of a server, as each frontend process serves them."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from server.metrics import Metrics, family
from server.metrics.family import Snapshot
from server.multiprocess.supervised import SupervisedProcess

# How long the supervisor waits for the metrics of other processes, in seconds. If a process does
# not answer in time, for example because it loads a model, its last known metrics are used.
_COLLECT_SECONDS = 2.0
# How long a frontend process waits for the supervisor's answer, in seconds. The supervisor is never
# busy for long, so its answer comes within little more than _COLLECT_SECONDS. Without an answer,
# the frontend process serves its own metrics alone.
_SUPERVISOR_SECONDS = 10.0
# The types of metrics that describe a process only while it runs.
_PROCESS_TYPES = ("gauge", family.EVENTS)


class ServerMetrics(Metrics):
    """The registry of a frontend process, whose exposition has the metrics of all processes."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        """Create the registry.

        Args:
          ask: takes a number, and asks the supervisor for the metrics of all processes. The
            supervisor's answer, which is passed to `receive`, has the same number.
        """
        super().__init__()
        self._ask = ask
        self._numbers = itertools.count(1)
        self._waiting: dict[int, list[Any]] = {}
        self._condition = threading.Condition()

    def receive(self, number: int, families: Snapshot) -> None:
        """Pass the supervisor's answer on to the thread that waits for it."""
        with self._condition:
            if number in self._waiting:
                self._waiting[number].append(families)
                self._condition.notify_all()

    def first_value(self, name: str) -> int | None:
        """Return the value of a counter's first series, added up over all processes."""
        for metric in self.collect():
            if metric.name == name and metric.metric_type == "counter":
                value = metric.values[min(metric.values)] if metric.values else 0
                return int(value) if not isinstance(value, tuple) else None
        return None

    def collect(self) -> Snapshot:
        """Return the present values of the metrics of all processes, added up."""
        number = next(self._numbers)
        with self._condition:
            answers = self._waiting[number] = []
            self._ask(number)
            self._condition.wait_for(lambda: answers, _SUPERVISOR_SECONDS)
            del self._waiting[number]
        # Without an answer, serve at least the metrics of this process.
        return answers[0] if answers else self.snapshot()


@dataclass
class _Collection:
    """A frontend process's request for the metrics of all processes, until it is answered."""

    asker: SupervisedProcess
    number: int
    missing: set[SupervisedProcess]
    deadline: float


class Collector:
    """The metrics of the processes of a server, as the supervisor collects them.

    The counts of a process that has ended are kept, so that no counter of the server ever falls.
    """

    def __init__(self) -> None:
        """Create a collector that knows no metrics."""
        self._latest: dict[SupervisedProcess, Snapshot] = {}
        self._ended: Snapshot = ()
        self._collections: list[_Collection] = []

    @property
    def deadlines(self) -> list[float]:
        """The times at which to call `answer`, by the clock `time.monotonic`."""
        return [collection.deadline for collection in self._collections]

    def begin(
        self, asker: SupervisedProcess, number: int, processes: Iterable[SupervisedProcess]
    ) -> None:
        """Ask processes for their metrics, because a frontend process has asked the supervisor."""
        missing = set(processes)
        for process in missing:
            process.send("snapshot")
        deadline = time.monotonic() + _COLLECT_SECONDS
        self._collections.append(_Collection(asker, number, missing, deadline))

    def update(self, process: SupervisedProcess, snapshot: Snapshot) -> None:
        """Record the present metrics of a process."""
        self._latest[process] = snapshot
        for collection in self._collections:
            collection.missing.discard(process)
        self.answer()

    def end(self, process: SupervisedProcess) -> None:
        """Keep the counts of a process that has ended, but not its gauges and messages."""
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
        """Answer the frontend processes whose metrics are complete or whose deadline has passed."""
        now = time.monotonic()
        for collection in list(self._collections):
            if not collection.missing or collection.deadline <= now:
                self._collections.remove(collection)
                total = family.add_up([self._ended, *self._latest.values()])
                collection.asker.send("collected", (collection.number, total))
