"""The counters and histograms of TensorFlow Serving, and those that this server has besides.

The names and units of the latter are those that Prometheus recommends. Source:
https://prometheus.io/docs/practices/naming.
"""

from collections.abc import Callable

from prometheus_client.registry import CollectorRegistry

from server.metrics.collectors import Counter, Histogram, RecentErrors

SERVING = "/tensorflow/serving/"
_BATCHING = SERVING + "batching_session/"
REQUEST_COUNT = SERVING + "request_count"
REQUEST_LATENCY = SERVING + "request_latency"


def exponential_bounds(first: float, growth: float, count: int) -> list[float]:
    """Return `count` bounds of buckets, from `first` on, each `growth` times the previous one."""
    bounds = [first]
    for _ in range(count - 1):
        bounds.append(bounds[-1] * growth)
    return bounds


LATENCY_BOUNDS_US = exponential_bounds(10, 1.8, 33)


class TensorFlowServingCollectors:
    """Counters and histograms with the names, labels and buckets of TensorFlow Serving."""

    def __init__(self, registry: CollectorRegistry, is_known: Callable[[str], bool]) -> None:
        counts = exponential_bounds(1, 2, 15)
        sizes = exponential_bounds(1, 2, 14)
        self.requests = Counter(registry, REQUEST_COUNT, ("model_name", "status"), "", is_known)
        self.latencies = Histogram(
            registry, REQUEST_LATENCY, ("model_name", "API", "entrypoint"), LATENCY_BOUNDS_US
        )
        self.runtimes = Histogram(
            registry,
            SERVING + "runtime_latency",
            ("model_name", "API", "runtime"),
            LATENCY_BOUNDS_US,
        )
        self.example_counts = Histogram(
            registry, SERVING + "request_example_counts", ("model",), counts
        )
        self.examples = Counter(registry, SERVING + "request_example_count_total", ("model",))
        self.logged = Counter(
            registry, SERVING + "request_log_count", ("model_name", "status_code")
        )
        self.warm_ups = Histogram(
            registry, SERVING + "model_warmup_latency", ("model_path", "status"), LATENCY_BOUNDS_US
        )
        self.warm_up_records = Counter(
            registry, SERVING + "model_warmup_records_read", ("model_path", "status")
        )
        self.queuing = Histogram(
            registry,
            _BATCHING + "queuing_latency",
            ("thread_pool_name",),
            exponential_bounds(100, 1.2, 52),
        )
        self.wrapped_runs = Counter(registry, _BATCHING + "wrapped_run_count")
        self.paddings = Histogram(
            registry, _BATCHING + "padding_size", ("execution_batch_size",), sizes
        )
        self.input_sizes = Histogram(registry, _BATCHING + "input_batch_size", (), sizes)
        self.processed_sizes = Histogram(registry, _BATCHING + "processed_batch_size", (), sizes)


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
        self.uploads = Counter(
            registry,
            OWN + "request_log_uploads_total",
            ("model_name", "code"),
            "Tries to upload a file of the request log, by canonical status code.",
        )
        self.lazy_loads = Counter(
            registry,
            OWN + "lazy_loads_total",
            ("model_name",),
            "Loads of a model that a request has caused.",
            is_known,
        )
        self.evictions = Counter(
            registry,
            OWN + "model_evictions_total",
            ("model_name",),
            "Unloads of a model to make room for another.",
            is_known,
        )
        self.alone = Counter(
            registry,
            OWN + "batching_requests_alone_total",
            ("model_name", "version", "reason"),
            "Requests that did not share a batch.",
        )


def _add_durations(registry: CollectorRegistry, name: str, help: str) -> Histogram:
    return Histogram(registry, OWN + name, _MODEL_LABELS, _SECONDS, help)
