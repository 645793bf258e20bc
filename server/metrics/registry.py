"""The registry of one server's metrics."""

import threading
from typing import TypeVar

from server.metrics.collectors import Collector, Counter
from server.metrics.family import Family

_Collector = TypeVar("_Collector", bound=Collector)


class Registry:
    """Metrics by name. Each server has a registry of its own; a process may run several servers."""

    def __init__(self) -> None:
        """Create an empty registry."""
        self._collectors: dict[str, Collector] = {}
        self._lock = threading.Lock()

    def add(self, collector: _Collector) -> _Collector:
        """Register a metric, which replaces any metric of the same name, and return the metric."""
        with self._lock:
            self._collectors[collector.name] = collector
        return collector

    def snapshot(self) -> list[Family]:
        """Return the present values of all metrics, in the order of names."""
        with self._lock:
            collectors = sorted(self._collectors.items())
        return [collector.snapshot() for _, collector in collectors]

    def first_value(self, name: str) -> int | None:
        """Return the value of a counter's first series; None if no counter has the name.

        Args:
          name: the metric's name in the registry, such as "/tensorflow/serving/request_count".
        """
        with self._lock:
            collector = self._collectors.get(name)
        return collector.first_value if isinstance(collector, Counter) else None
