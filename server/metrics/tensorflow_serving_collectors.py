"""The metrics of TensorFlow Serving, under its names.

Source: the metrics that `tensorflow_model_server` exports with a monitoring configuration.
"""

from collections.abc import Callable

from server.metrics.collectors import Counter, Histogram
from server.metrics.registry import Registry

SERVING = "/tensorflow/serving/"
_BATCHING = SERVING + "batching_session/"

REQUEST_COUNT = SERVING + "request_count"
REQUEST_LATENCY = SERVING + "request_latency"


class TensorFlowServingCollectors:
    """Counters and histograms with the names, labels and buckets of TensorFlow Serving."""

    def __init__(self, registry: Registry, is_known: Callable[[str], bool]) -> None:
        """Create the metrics, and add them to a registry.

        `is_known` returns whether a model name is known to the server, and not made up by a client.
        """
        add = registry.add
        latency = exponential_bounds(10, 1.8, 33)
        counts = exponential_bounds(1, 2, 15)
        sizes = exponential_bounds(1, 2, 14)
        self.requests = add(Counter(REQUEST_COUNT, ("model_name", "status"), "", is_known))
        self.latencies = add(
            Histogram(REQUEST_LATENCY, ("model_name", "API", "entrypoint"), latency)
        )
        self.runtimes = add(
            Histogram(SERVING + "runtime_latency", ("model_name", "API", "runtime"), latency)
        )
        self.example_counts = add(Histogram(SERVING + "request_example_counts", ("model",), counts))
        self.examples = add(Counter(SERVING + "request_example_count_total", ("model",)))
        self.logged = add(Counter(SERVING + "request_log_count", ("model_name", "status_code")))
        self.warm_ups = add(
            Histogram(SERVING + "model_warmup_latency", ("model_path", "status"), latency)
        )
        self.warm_up_records = add(
            Counter(SERVING + "model_warmup_records_read", ("model_path", "status"))
        )
        self.queuing = add(
            Histogram(
                _BATCHING + "queuing_latency",
                ("thread_pool_name",),
                exponential_bounds(100, 1.2, 52),
            )
        )
        self.wrapped_runs = add(Counter(_BATCHING + "wrapped_run_count"))
        self.paddings = add(Histogram(_BATCHING + "padding_size", ("execution_batch_size",), sizes))
        self.input_sizes = add(Histogram(_BATCHING + "input_batch_size", (), sizes))
        self.processed_sizes = add(Histogram(_BATCHING + "processed_batch_size", (), sizes))


def exponential_bounds(first: float, growth: float, count: int) -> list[float]:
    """Return `count` bounds of buckets, from `first` on, each `growth` times the previous one."""
    bounds = [first]
    for _ in range(count - 1):
        bounds.append(bounds[-1] * growth)
    return bounds
