"""Builds the status of the server that the console's page polls."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any, TypeAlias

from server.dataplane import DataPlane, ModelSpec
from server.metrics import Metrics
from server.metrics.family import Family, Snapshot
from server.metrics.metrics import IN_FLIGHT, QUEUE_SIZE, RESIDENT_BYTES
from server.metrics.own_collectors import RECENT_ERRORS
from server.metrics.tensorflow_serving_collectors import REQUEST_COUNT, REQUEST_LATENCY
from server.process import memory_limit
from server.servables.servable import State, VersionStatus
from tpuserve.errors import ModelNotFound, TpuserveError, Unavailable

Json: TypeAlias = dict[str, Any]


class StatusReporter:
    """Describes the models and their load for the console's page.

    The counts are totals since the start of the server. The page computes rates from the
    differences between two reports.
    """

    def __init__(self, dataplane: DataPlane, metrics: Metrics | None) -> None:
        """Create a reporter.

        Args:
          dataplane: Has the models, their states and their statistics.
          metrics: The registry in which requests are counted. None for a server without metrics.
        """
        self._dataplane = dataplane
        self._metrics = metrics
        self._memory_bytes = memory_limit.usable_memory_bytes()

    def build(self, unready_reason: str) -> Json:
        """Return the status of the server as JSON.

        If the models or the metrics are in other processes, the method blocks until these processes
        have sent their state.

        Args:
          unready_reason: Why the server is not ready; "" if it is ready.
        """
        families = _Families(() if self._metrics is None else self._metrics.collect())
        try:
            models = self._dataplane.list_models()
        except TpuserveError as error:
            # Report no models while the process that runs them is starting or has ended.
            models, unready_reason = {}, unready_reason or str(error)
        return {
            "time_ms": time.time_ns() // 1_000_000,
            "tpuserve_version": metadata.version("tpuserve"),
            "unready_reason": unready_reason,
            "resident_bytes": families.total(RESIDENT_BYTES),
            "memory_bytes": self._memory_bytes,
            "requests_in_flight": families.total(IN_FLIGHT),
            "latency_bounds_us": families.bounds(REQUEST_LATENCY),
            "models": [
                {
                    "name": name,
                    "reason": "" if status.reason is None else str(status.reason),
                    "requests": families.by_status(name),
                    "latency_counts": families.latency_counts(name),
                    "queue_length": families.total(QUEUE_SIZE, name),
                    "versions": [
                        self._describe_version(name, version) for version in status.versions
                    ],
                }
                for name, status in sorted(models.items())
            ],
            "errors": _describe_errors(families[RECENT_ERRORS]),
        }

    def _describe_version(self, model: str, status: VersionStatus) -> Json:
        version: Json = {
            # Send the version number as text, because JavaScript rounds integers above 2**53.
            "version": str(status.version),
            "state": status.state.name,
            "reason": status.note if status.error is None else str(status.error),
            "is_failed": status.error is not None,
            "selection": status.selection,
        }
        if status.state is State.AVAILABLE:
            try:
                statistics = self._dataplane.statistics(ModelSpec(model, status.version))
            except (ModelNotFound, Unavailable):
                # The version was unloaded, or the process that runs it ended, after its status was
                # read. Return it without the counts of its requests.
                return version
            version["requests"] = statistics.inferences.num_successes
            version["rows"] = statistics.inferences.num_rows
            version["batching"] = statistics.batching
            unbatched = (statistics.batching or {}).get("unbatched_signatures", {})
            notes = (f"{name} is not batched: {reason}" for name, reason in unbatched.items())
            version["reason"] = ". ".join(filter(None, (status.note, *notes)))
        return version


class _Families:
    """The metrics of a server, with methods that add up the values of a metric.

    A metric has a value for each combination of its labels, such as model and status.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._by_name = {family.name: family for family in snapshot}

    def __getitem__(self, name: str) -> Family:
        return self._by_name.get(name, Family(name, "gauge", (), {}))

    def total(self, name: str, model: str | None = None) -> float:
        """Return the sum of the values of a metric, for one model or for all.

        Args:
          name: The name of the metric.
          model: The name of the model, which is the first label of the metric. None for all models.
        """
        return sum(
            value
            for labels, value in self[name].values.items()
            if not isinstance(value, tuple) and (model is None or labels[0] == model)
        )

    def bounds(self, name: str) -> Sequence[float]:
        """Return the upper bounds of a histogram's buckets, except the last, which has no bound."""
        return self[name].bounds

    def by_status(self, model: str) -> Json:
        """Return how many requests of a model ended with each status.

        The result maps the name of the canonical status code to the number of requests.
        """
        counts: Counter[str] = Counter()
        for (name, status), value in self[REQUEST_COUNT].values.items():
            if name == model and not isinstance(value, tuple):
                counts[status] += int(value)
        return dict(counts)

    def latency_counts(self, model: str) -> list[float]:
        """Return the number of a model's requests in each bucket of the latency histogram."""
        counts = [0.0] * (len(self.bounds(REQUEST_LATENCY)) + 1)
        for labels, value in self[REQUEST_LATENCY].values.items():
            if labels[0] == model and isinstance(value, tuple):
                *series, _ = value
                counts = [count + number for count, number in zip(counts, series, strict=True)]
        return counts


def _describe_errors(family: Family) -> list[Json]:
    """Return the recent errors of requests, latest first.

    Equal errors of several processes become one entry with their total count.
    """
    entries: dict[tuple[str, ...], Json] = {}
    for (time_ms, *error), count in _sorted_by_time(family):
        model, entrypoint, status, message = error
        entry = entries.setdefault(
            tuple(error),
            {
                "time_ms": int(time_ms),
                "model": model,
                "protocol": entrypoint,
                "status": status,
                "message": message,
                "count": 0,
            },
        )
        entry["count"] += count
    return list(entries.values())


def _sorted_by_time(family: Family) -> Iterable[tuple[tuple[str, ...], Any]]:
    return sorted(family.values.items(), key=lambda item: int(item[0][0]), reverse=True)
