"""The metrics of TensorFlow Serving, under its names.

Source: the metrics that `tensorflow_model_server` exports with a monitoring configuration.
"""

from collections.abc import Callable

from prometheus_client.registry import CollectorRegistry

from server.metrics.collectors import Counter, Histogram

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
