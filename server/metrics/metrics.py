"""What happens in a server, as methods to call when it does."""

from collections.abc import Callable, Mapping

from server.metrics.collectors import Counter, Gauge, Histogram, Labels
from server.metrics.registry import Registry

_SERVING = "/tensorflow/serving/"
_BATCHING = _SERVING + "batching_session/"
_OURS = "/tpuserve/"

# The runtime that a session is, in the words of TensorFlow Serving.
_RUNTIME = "TF1"


class Metrics:
    """The metrics of TensorFlow Serving, by its names, and a few of ours.

    A face records what does not reach the data plane: a request that cannot be read, and one for
    status or metadata. What reaches it is recorded there.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        """Takes where to keep them; None for a registry of its own."""
        self._registry = Registry() if registry is None else registry
        add = self._registry.add
        latency = exponential(10, 1.8, 33)
        counts = exponential(1, 2, 15)
        sizes = exponential(1, 2, 14)
        self._requests = add(Counter(_SERVING + "request_count", ("model_name", "status")))
        self._latencies = add(
            Histogram(_SERVING + "request_latency", ("model_name", "API", "entrypoint"), latency)
        )
        self._runtimes = add(
            Histogram(_SERVING + "runtime_latency", ("model_name", "API", "runtime"), latency)
        )
        self._example_counts = add(
            Histogram(_SERVING + "request_example_counts", ("model",), counts)
        )
        self._examples = add(Counter(_SERVING + "request_example_count_total", ("model",)))
        self._logged = add(Counter(_SERVING + "request_log_count", ("model_name", "status_code")))
        self._warm_ups = add(
            Histogram(_SERVING + "model_warmup_latency", ("model_path", "status"), latency)
        )
        self._warm_up_records = add(
            Counter(_SERVING + "model_warmup_records_read", ("model_path", "status"))
        )
        self._queuing = add(
            Histogram(
                _BATCHING + "queuing_latency", ("thread_pool_name",), exponential(100, 1.2, 52)
            )
        )
        self._wrapped_runs = add(Counter(_BATCHING + "wrapped_run_count"))
        self._paddings = add(
            Histogram(_BATCHING + "padding_size", ("execution_batch_size",), sizes)
        )
        self._input_sizes = add(Histogram(_BATCHING + "input_batch_size", (), sizes))
        self._processed_sizes = add(Histogram(_BATCHING + "processed_batch_size", (), sizes))

    def request_done(
        self, model: str, api: str, entrypoint: str, status_code_name: str, latency_us: float
    ) -> None:
        """One request is answered, well or not; a latency is kept of those that went well.

        Args:
          api: "Predict", "Classify" or "Regress" for gRPC; for REST in lower case, or empty for
            what has no verb.
          entrypoint: "GRPC" or "REST".
          status_code_name: of the canonical code, "OK" or "NOT_FOUND".
        """
        self._requests.add((model, status_code_name))
        if status_code_name == "OK":
            self._latencies.add((model, api, entrypoint), latency_us)

    def runtime(self, model: str, api: str, latency_us: float) -> None:
        """One request has run its model; api is "Predict" and so on for both faces."""
        self._runtimes.add((model, api, _RUNTIME), latency_us)

    def examples(self, model: str, count: int) -> None:
        """One request has brought so many examples."""
        self._example_counts.add((model,), count)
        self._examples.add((model,), count)

    def request_logged(self, model: str, status_code_name: str) -> None:
        """One request that was chosen for the log is written there, or is not and why."""
        self._logged.add((model, status_code_name))

    def warmed_up(self, model_path: str, status_code_name: str, latency_us: float) -> None:
        """One warm-up has ended."""
        self._warm_ups.add((model_path, status_code_name), latency_us)

    def warm_up_record_read(self, model_path: str, status_code_name: str) -> None:
        """One record of a warm-up file was read."""
        self._warm_up_records.add((model_path, status_code_name))

    def queued(self, thread_pool_name: str, latency_us: float) -> None:
        """One request has waited so long to be part of a batch."""
        self._queuing.add((thread_pool_name,), latency_us)

    def batched_request(self, size: int) -> None:
        """One request of so many rows was given to the batcher."""
        self._input_sizes.add((), size)

    def batch_run(self, size: int, padding: int) -> None:
        """One batch is run: of so many rows with the padding, so many of them padding."""
        self._wrapped_runs.add()
        self._processed_sizes.add((), size)
        self._paddings.add((str(size),), padding)

    def watch_states(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Exports the state of each version: (model, version, state) → 1."""
        labels = ("model_name", "version", "state")
        self._registry.add(Gauge(_OURS + "version_state", labels, read))

    def watch_fallbacks(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Exports which versions run on the CPU for want of a TPU: (model, version) → 1 or 0."""
        self._registry.add(Gauge(_OURS + "fallback_to_cpu", ("model_name", "version"), read))

    def watch_provenance(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Exports what each version is in ML Metadata: (model, version, uuid) → 1."""
        labels = ("model_name", "version", "uuid")
        self._registry.add(Gauge(_SERVING + "mlmd_map", labels, read))

    def watch_in_flight(self, read: Callable[[], int]) -> None:
        """Exports how many requests are in flight."""
        self._registry.add(Gauge(_OURS + "requests_in_flight", (), lambda: {(): read()}))

    def watch_queue(self, thread_pool_name: str, read: Callable[[], int]) -> None:
        """Exports how many requests wait to be part of a batch."""
        self._registry.add(
            Gauge(
                _OURS + "batching_queue_length",
                ("thread_pool_name",),
                lambda: {(thread_pool_name,): read()},
            )
        )

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        return self._registry.exposition()

    def first_value(self, name: str) -> int | None:
        """The value of a counter's first series; None where no counter has the name.

        Args:
          name: as in the registry, "/tensorflow/serving/request_count".
        """
        return self._registry.first_value(name)


def exponential(first: float, growth: float, count: int) -> list[float]:
    """So many bounds of buckets, each as many times the one before it."""
    bounds = [first]
    for _ in range(count - 1):
        bounds.append(bounds[-1] * growth)
    return bounds
