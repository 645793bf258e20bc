"""The registry of a server's metrics, which finds metrics by their names."""

import threading
from typing import TypeVar

from server.metrics.collectors import Collector, Counter
from server.metrics.family import Family

_Collector = TypeVar("_Collector", bound=Collector)


class Registry:
    """The metrics of a server by name.

    Each server has its own registry, because a process can run several servers.
    """

    def __init__(self) -> None:
        """Create an empty registry."""
        self._collectors: dict[str, Collector] = {}
        self._lock = threading.Lock()

    def add(self, collector: _Collector) -> _Collector:
        """Register a metric, and return it.

        The metric replaces an earlier metric of the same name.
        """
        with self._lock:
            self._collectors[collector.name] = collector
        return collector

    def snapshot(self) -> list[Family]:
        """Return the present values of all metrics, in the order of their names."""
        with self._lock:
            collectors = sorted(self._collectors.items())
        return [collector.snapshot() for _, collector in collectors]

    def first_value(self, name: str) -> int | None:
        """Return the value of the first series of a counter; None if no counter has this name.

        Args:
          name: the metric's name in the registry, such as "/tensorflow/serving/request_count".
        """
        with self._lock:
            collector = self._collectors.get(name)
        return collector.first_value if isinstance(collector, Counter) else None
