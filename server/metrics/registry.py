"""All metrics of one server."""

import threading
from typing import TypeVar

from server.metrics.collectors import Counter, Family

_Kind = TypeVar("_Kind", bound=Family)


class Registry:
    """Metrics by name; each server has its own, so that two in one process do not mix."""

    def __init__(self) -> None:
        """Makes an empty one."""
        self._families: dict[str, Family] = {}
        self._lock = threading.Lock()

    def add(self, family: _Kind) -> _Kind:
        """The metric itself, which from here on is exported; it replaces one of its name."""
        with self._lock:
            self._families[family.name] = family
        return family

    def exposition(self) -> bytes:
        """The text that Prometheus reads, in the order of names."""
        with self._lock:
            families = sorted(self._families.items())
        lines = [line for _, family in families for line in family.lines()]
        return "\n".join([*lines, ""]).encode("utf-8", "backslashreplace")

    def first_value(self, name: str) -> int | None:
        """The value of a counter's first series; None where no counter has the name.

        Args:
          name: as in the registry, "/tensorflow/serving/request_count".
        """
        with self._lock:
            family = self._families.get(name)
        return family.first if isinstance(family, Counter) else None
