"""The metrics that this server has in addition to those of TensorFlow Serving.

Their names and units are those that Prometheus recommends. Source:
https://prometheus.io/docs/practices/naming.
"""

from collections.abc import Callable

from prometheus_client.registry import CollectorRegistry

from server.metrics.collectors import Counter, Histogram, RecentErrors

OWN = "tpuserve_"

_MODEL_LABELS = ("model_name", "version", "signature", "metagraph")

# The upper bounds of the buckets of all histograms of durations, in seconds, and of rows. Each
# model has all of them, so that they are few.
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 256)


class OwnCollectors:
    """The counters and histograms that TensorFlow Serving does not have."""

    def __init__(self, registry: CollectorRegistry, is_known: Callable[[str], bool]) -> None:
        self.errors = RecentErrors()
        self.ended_requests = Counter(
            registry,
            OWN + "requests_total",
            (*_MODEL_LABELS, "code"),
            "Requests that ran a model or failed, by canonical status code.",
            is_known,
        )
        self.queue_times = _add_durations(
            registry, "queue_duration_seconds", "Time that a successful request waited in queues."
        )
        self.run_times = _add_durations(
            registry, "run_duration_seconds", "Time of the model's run for a successful request."
        )
        self.request_times = _add_durations(
            registry,
            "request_duration_seconds",
            "Time from a successful request's arrival to its answer.",
        )
        self.batch_sizes = Histogram(
            registry, OWN + "batch_size", _MODEL_LABELS, _ROWS, "Rows of a run, without padding."
        )
        self.shed = Counter(
            registry,
            OWN + "requests_shed_total",
            ("model_name", "reason"),
            "Requests that a queue refused.",
        )
        self.reloads = Counter(
            registry,
            OWN + "config_reloads_total",
            ("code",),
            "Model configurations that were applied (OK) or refused.",
        )
        self.alone = Counter(
            registry,
            OWN + "batching_requests_alone_total",
            ("model_name", "version", "reason"),
            "Requests that did not share a batch.",
        )


def _add_durations(registry: CollectorRegistry, name: str, help: str) -> Histogram:
    return Histogram(registry, OWN + name, _MODEL_LABELS, _SECONDS, help)
