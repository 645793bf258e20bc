"""The metrics of a server: a method to call for each event."""

from collections.abc import Callable, Mapping
from functools import partial

from server.metrics import family
from server.metrics.collectors import Counter, Gauge, Histogram
from server.metrics.family import Family, Labels
from server.metrics.registry import Registry

_SERVING = "/tensorflow/serving/"
_BATCHING = _SERVING + "batching_session/"
_OURS = "/tpuserve/"

# The value of the label "runtime", which TensorFlow Serving gives to models that a tf.Session runs.
_RUNTIME = "TF1"


class Metrics:
    """TensorFlow Serving's metrics under its names, and metrics of our own.

    The data plane records the requests that reach it. A frontend records all other requests:
    requests that cannot be parsed, and requests for status or metadata.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        """Register the metrics in a registry; None creates a new registry."""
        self._registry = Registry() if registry is None else registry
        add = self._registry.add
        latency = exponential_bounds(10, 1.8, 33)
        counts = exponential_bounds(1, 2, 15)
        sizes = exponential_bounds(1, 2, 14)
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
                _BATCHING + "queuing_latency",
                ("thread_pool_name",),
                exponential_bounds(100, 1.2, 52),
            )
        )
        self._queue_times = add(Histogram(_OURS + "queue_time", ("model_name",), latency))
        self._shed = add(Counter(_OURS + "requests_shed", ("model_name", "reason")))
        self._reloads = add(Counter(_OURS + "reload_count", ("status",)))
        self._wrapped_runs = add(Counter(_BATCHING + "wrapped_run_count"))
        self._paddings = add(
            Histogram(_BATCHING + "padding_size", ("execution_batch_size",), sizes)
        )
        self._input_sizes = add(Histogram(_BATCHING + "input_batch_size", (), sizes))
        self._alone = add(Counter(_OURS + "batching_requests_alone", ("version", "reason")))
        self._processed_sizes = add(Histogram(_BATCHING + "processed_batch_size", (), sizes))

    def request_done(
        self, model: str, api: str, entrypoint: str, status_code_name: str, latency_us: float
    ) -> None:
        """Record an answered request, and its latency if it succeeded.

        Args:
          model: the model's name.
          api: "Predict", "Classify" or "Regress" over gRPC; the same in lower case over REST, or
            empty for a REST request without a verb such as ":predict".
          entrypoint: "GRPC" or "REST".
          status_code_name: the name of the canonical code, such as "OK" or "NOT_FOUND".
          latency_us: from the request's arrival to its answer, in microseconds.
        """
        self._requests.add((model, status_code_name))
        if status_code_name == "OK":
            self._latencies.add((model, api, entrypoint), latency_us)

    def runtime(self, model: str, api: str, latency_us: float) -> None:
        """Record the duration of a model's run; `api` is "Predict", "Classify" or "Regress"."""
        self._runtimes.add((model, api, _RUNTIME), latency_us)

    def examples(self, model: str, count: int) -> None:
        """Record the number of examples in a request."""
        self._example_counts.add((model,), count)
        self._examples.add((model,), count)

    def request_logged(self, model: str, status_code_name: str) -> None:
        """Record whether a request that was sampled for the request log could be written."""
        self._logged.add((model, status_code_name))

    def warmed_up(self, model_path: str, status_code_name: str, latency_us: float) -> None:
        """Record the duration of a version's warm-up, in microseconds."""
        self._warm_ups.add((model_path, status_code_name), latency_us)

    def warm_up_record_read(self, model_path: str, status_code_name: str) -> None:
        """Record that a record of a warm-up file was read, and whether that succeeded."""
        self._warm_up_records.add((model_path, status_code_name))

    def queued(self, thread_pool_name: str, latency_us: float) -> None:
        """Record how long a request waited in a batching queue, in microseconds."""
        self._queuing.add((thread_pool_name,), latency_us)

    def request_queued(self, model: str, latency_us: float) -> None:
        """Record how long a request waited in the queue of its model, in microseconds."""
        self._queue_times.add((model,), latency_us)

    def request_shed(self, model: str, reason: str) -> None:
        """Record a refusal by a queue; `reason` is "queue full" or "waited too long"."""
        self._shed.add((model, reason))

    def reloaded(self, status_code_name: str) -> None:
        """Record the outcome of a configuration reload: "OK", or the code of the error."""
        self._reloads.add((status_code_name,))

    def batched_request(self, size: int) -> None:
        """Record the rows of a request that enters a batching queue."""
        self._input_sizes.add((), size)

    def batch_run(self, size: int, padding: int) -> None:
        """Record the run of a batch of `size` rows, `padding` of which are padding."""
        self._wrapped_runs.add()
        self._processed_sizes.add((), size)
        self._paddings.add((str(size),), padding)

    def ran_alone(self, version: str, reason: str) -> None:
        """Record that a request did not share a batch, and why.

        Args:
          version: the name and version of the model, such as "resnet/3".
          reason: a value of `AloneReason`.
        """
        self._alone.add((version, reason))

    def watch_states(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Export the state of each version; `read` returns (model, version, state) → 1."""
        labels = ("model_name", "version", "state")
        self._registry.add(Gauge(_OURS + "version_state", labels, read))

    def watch_fallbacks(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Export which versions fell back to the CPU; `read` returns (model, version) → 1 or 0."""
        self._registry.add(Gauge(_OURS + "fallback_to_cpu", ("model_name", "version"), read))

    def watch_provenance(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Export ML Metadata identifiers; `read` returns (model, version, uuid) → 1."""
        labels = ("model_name", "version", "uuid")
        self._registry.add(Gauge(_SERVING + "mlmd_map", labels, read))

    def watch_in_flight(self, read: Callable[[], int]) -> None:
        """Export the number of requests in flight; `read` returns the number at each export."""
        self._registry.add(Gauge(_OURS + "requests_in_flight", (), lambda: {(): read()}))

    def watch_batching(self, read: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        """Export how many batches of each version run, and how many may run at the same time.

        Args:
          read: returns name and version of the model, such as "resnet/3" → (running batches,
            limit).
        """

        def read_number(index: int) -> dict[Labels, float]:
            return {(version,): runs[index] for version, runs in read().items()}

        for index, name in enumerate(("batching_runs", "batching_max_runs")):
            self._registry.add(Gauge(_OURS + name, ("version",), partial(read_number, index)))

    def watch_request_queues(
        self,
        read_lengths: Callable[[], Mapping[Labels, float]],
        read_in_flight: Callable[[], Mapping[Labels, float]],
    ) -> None:
        """Export the queue of each model.

        Args:
          read_lengths: returns (model,) → the number of its requests that wait for a run.
          read_in_flight: returns (model,) → the number of its requests that wait or run.
        """
        labels = ("model_name",)
        self._registry.add(Gauge(_OURS + "queue_length", labels, read_lengths))
        self._registry.add(Gauge(_OURS + "model_requests_in_flight", labels, read_in_flight))

    def watch_queue(self, thread_pool_name: str, read: Callable[[], int]) -> None:
        """Export the number of requests in a batching queue; `read` returns the number."""
        self._registry.add(
            Gauge(
                _OURS + "batching_queue_length",
                ("thread_pool_name",),
                lambda: {(thread_pool_name,): read()},
            )
        )

    def snapshot(self) -> list[Family]:
        """Return the present values of all metrics, in the order of names."""
        return self._registry.snapshot()

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return family.format_snapshot(self.snapshot())

    def first_value(self, name: str) -> int | None:
        """Return the value of a counter's first series; None if no counter has the name.

        Args:
          name: the metric's name in the registry, such as "/tensorflow/serving/request_count".
        """
        return self._registry.first_value(name)


def exponential_bounds(first: float, growth: float, count: int) -> list[float]:
    """Return `count` bucket bounds, each `growth` times the previous bound."""
    bounds = [first]
    for _ in range(count - 1):
        bounds.append(bounds[-1] * growth)
    return bounds
