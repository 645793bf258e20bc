"""Records the events of a server as metrics: one method per kind of event."""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import CollectorRegistry

from server.metrics.collectors import (
    MAXIMUM,
    Counter,
    Gauges,
    Histogram,
    Labels,
    RecentError,
    exported_name,
    render_page,
)
from server.metrics.own_collectors import OWN, SERVING, OwnCollectors, TensorFlowServingCollectors
from server.metrics.timeline import Timeline
from tpuserve.errors import Code, InvalidSetting

QUEUE_SIZE = OWN + "queue_size"
IN_FLIGHT = OWN + "requests_in_flight"
RESIDENT_BYTES = OWN + "resident_bytes"

PROCESSES_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the directory in which several processes share their metrics.

prometheus_client reads it when it is imported."""
_PUBLISH_SECONDS = 1.0

# The value of the label "runtime" in the metric of run times. TensorFlow Serving uses this value
# for models that a tf.Session runs.
_RUNTIME = "TF1"

logger = logging.getLogger(__name__)


class Metrics:
    """All metrics of a server: those of TensorFlow Serving, under its names, and additional ones.

    The frontends (the REST and gRPC servers) record the requests with their latencies and errors.
    The data plane records the runs of models.
    """

    def __init__(self, dropped_labels: Collection[str] = ()) -> None:
        self._dropped_labels = dropped_labels
        self._registry = CollectorRegistry()
        self._gauges = Gauges(self._registry)
        self._processes_directory = os.environ.get(PROCESSES_DIRECTORY, "")
        if self._processes_directory:
            threading.Thread(target=self._publish_gauges, name="gauges", daemon=True).start()
        self._is_configured: Callable[[str], bool] = lambda model: True
        self._serving = TensorFlowServingCollectors(self._registry, self._is_known)
        self._own = OwnCollectors(self._registry, self._is_known)
        collectors = [*vars(self._serving).values(), *vars(self._own).values()]
        known = {
            label
            for collector in collectors
            if isinstance(collector, Counter | Histogram)
            for label in collector.labels
        }
        for label in dropped_labels:
            if label not in known:
                raise InvalidSetting(
                    f"--metrics_drop_labels names {label!r}, which no metric has as a label. "
                    f"Choose from {', '.join(sorted(known))}."
                )
        self._queue_readers: list[Callable[[], Mapping[Labels, float]]] = []
        self._gauges.add(
            QUEUE_SIZE, ("model_name",), self._read_queue_sizes, "Requests that wait for a run."
        )

    def request_ended(self, timeline: Timeline, status_code_name: str) -> None:
        """Record an inference request that has ended, and its durations if it succeeded.

        Args:
          timeline: the times of the request; its method `end` must have been called.
          status_code_name: the name of the canonical (gRPC) status code, such as "OK" or
            "NOT_FOUND".
        """
        labels = timeline.labels
        self._own.ended_requests.add((*labels, status_code_name))
        if status_code_name == "OK" and timeline.ran_ns:
            self._own.queue_times.add(labels, timeline.queue_seconds)
            self._own.run_times.add(labels, timeline.run_seconds)
            self._own.request_times.add(labels, timeline.total_seconds)

    def model_run(self, labels: Labels, rows: int) -> None:
        """Record a run of a model."""
        self._own.batch_sizes.add(labels, rows)

    def request_done(
        self, model: str, api: str, entrypoint: str, status_code_name: str, latency_us: float
    ) -> None:
        """Record a request that was answered, and its latency if it succeeded.

        Args:
          api: the method: "Predict", "Classify" or "Regress" for gRPC, and the same in lower case
            for REST. Empty for a REST request whose path does not end with a method (":predict").
          status_code_name: the name of the canonical (gRPC) status code, such as "OK" or
            "NOT_FOUND".
          latency_us: the time from the request's arrival to its answer, in microseconds.
        """
        self._serving.requests.add((model, status_code_name))
        if status_code_name == "OK":
            self._serving.latencies.add((model, api, entrypoint), latency_us)

    def request_failed(
        self, model: str, entrypoint: str, status_code_name: str, message: str
    ) -> None:
        """Record the message of a request's error, for the web page for operators.

        The method counts nothing: `request_done` counts the error. A request that its client has
        cancelled is no error to look at.

        Args:
          status_code_name: the name of the canonical code, such as "NOT_FOUND".
        """
        if status_code_name != Code.CANCELLED.name:
            self._own.errors.add(model, entrypoint, status_code_name, message)

    def run_measured(self, model: str, api: str, latency_us: float) -> None:
        """Record the duration of a model's run.

        Args:
          api: the method that ran the model, such as "Predict".
        """
        self._serving.runtimes.add((model, api, _RUNTIME), latency_us)

    def examples_received(self, model: str, count: int) -> None:
        """Record the number of tf.train.Example messages in a request for a model."""
        self._serving.example_counts.add((model,), count)
        self._serving.examples.add((model,), count)

    def request_logged(self, model: str, status_code_name: str) -> None:
        """Record an attempt to write a request to the request log, and its outcome.

        `status_code_name` is "OK", or the name of the error's canonical code.
        """
        self._serving.logged.add((model, status_code_name))

    def request_log_uploaded(self, model: str, status_code_name: str) -> None:
        """Record a try to upload a file of the request log, and its outcome.

        `status_code_name` is "OK", or the name of the error's canonical code.
        """
        self._own.uploads.add((model, status_code_name))

    def warmed_up(self, model_path: str, status_code_name: str, latency_us: float) -> None:
        """Record the duration of a version's warm-up, and its outcome."""
        self._serving.warm_ups.add((model_path, status_code_name), latency_us)

    def warm_up_record_read(self, model_path: str, status_code_name: str) -> None:
        """Record that a request of a warm-up file was run, and the outcome of the run.

        `model_path` is the directory of the version. `status_code_name` is "OK", or the name of the
        error's canonical code.
        """
        self._serving.warm_up_records.add((model_path, status_code_name))

    def queued(self, thread_pool_name: str, latency_us: float) -> None:
        """Record how long a request waited in a batching queue."""
        self._serving.queuing.add((thread_pool_name,), latency_us)

    def request_shed(self, model: str, reason: str) -> None:
        """Record that a queue has refused a request.

        `reason` is "queue full", "waited too long" or "not loaded in time".
        """
        self._own.shed.add((model, reason))

    def reloaded(self, status_code_name: str) -> None:
        """Record a reload of the configuration, and its outcome.

        `status_code_name` is "OK", or the name of the error's canonical code.
        """
        self._own.reloads.add((status_code_name,))

    def lazily_loaded(self, model: str) -> None:
        """Record that a request has caused the load of a model."""
        self._own.lazy_loads.add((model,))

    def evicted(self, model: str) -> None:
        """Record that a model was unloaded to make room for another."""
        self._own.evictions.add((model,))

    def batched_request(self, size: int) -> None:
        """Record the number of rows (examples) of a request that enters a batching queue."""
        self._serving.input_sizes.add((), size)

    def batch_run(self, size: int, padding: int) -> None:
        """Record the run of a batch of `size` rows (examples), of which `padding` are padding."""
        self._serving.wrapped_runs.add()
        self._serving.processed_sizes.add((), size)
        self._serving.paddings.add((str(size),), padding)

    def ran_alone(self, model: str, version: str, reason: str) -> None:
        """Record that a request ran alone, and not in a batch with other requests."""
        self._own.alone.add((model, version, reason))

    def limit_unknown_models(self, is_configured: Callable[[str], bool]) -> None:
        """Give the names of models that are not configured half of a metric's series at most.

        Without this limit, clients that make up names could use all series of the counts of
        requests, so that none would be left for configured models.
        """
        self._is_configured = is_configured

    def watch_states(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Add the metric of the versions' states.

        Args:
          read: called whenever the metrics are read; returns (model, version, state) → 1, for the
            present state of each version.
        """
        labels = ("model_name", "version", "state")
        self._gauges.add(
            OWN + "version_state",
            labels,
            read,
            "1 for the present state of a version.",
            mode=MAXIMUM,
        )

    def watch_metagraphs(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Add the metric that shows the metagraph and the device of each version.

        Args:
          read: called whenever the metrics are read; returns (model, version, metagraph, device) →
            1, for each version.
        """
        labels = ("model_name", "version", "metagraph", "device")
        help_text = "1 for the metagraph that a version runs, and its device."
        self._gauges.add(OWN + "version_info", labels, read, help_text, mode=MAXIMUM)

    def watch_fallbacks(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Add the metric that shows which versions run on the CPU instead of the TPU.

        `read` returns (model, version) → 1 for such a version, 0 for any other.
        """
        labels = ("model_name", "version")
        help_text = "1 for a version that runs on the CPU for want of the other metagraph."
        self._gauges.add(OWN + "fallback_to_cpu", labels, read, help_text, mode=MAXIMUM)

    def watch_provenance(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Add the metric of the versions' ML Metadata identifiers (UUIDs).

        Args:
          read: called whenever the metrics are read; returns (model, version, uuid) → 1, for each
            version that has an identifier.
        """
        labels = ("model_name", "version", "uuid")
        self._gauges.add(SERVING + "mlmd_map", labels, read, mode=MAXIMUM)

    def watch_in_flight(self, read: Callable[[], int]) -> None:
        """Add the metric of the number of requests in flight, which `read` returns."""
        help_text = "Requests that the server has received and not answered."
        self._gauges.add(IN_FLIGHT, (), lambda: {(): read()}, help_text)

    def watch_memory(self, read: Callable[[], int]) -> None:
        """Add the metric of this process's resident memory, which `read` returns in bytes."""
        help_text = "Resident memory of the processes that run models and speak protocols."
        self._gauges.add(RESIDENT_BYTES, (), lambda: {(): read()}, help_text)

    def watch_model_bytes(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Add the metric of the loaded models' memory; `read` returns (model,) → bytes."""
        help_text = "Estimated memory of the loaded versions of a model."
        self._gauges.add(OWN + "model_bytes", ("model_name",), read, help_text)

    def watch_model_requests(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Add the metric of each model's requests in flight; `read` returns (model,) → number."""
        help_text = "Requests for a model that wait or run."
        self._gauges.add(OWN + "model_requests_in_flight", ("model_name",), read, help_text)

    def watch_batching(self, read: Callable[[], Mapping[Labels, tuple[int, int]]]) -> None:
        """Add two metrics of each version: its running batches, and the limit on their number.

        Args:
          read: returns (model, version) → (the number of batches that run, the largest number of
            batches that may run at the same time).
        """

        def read_number(index: int) -> dict[Labels, float]:
            return {version: runs[index] for version, runs in read().items()}

        labels = ("model_name", "version")
        self._gauges.add(
            OWN + "batching_runs", labels, partial(read_number, 0), "Batches that run."
        )
        self._gauges.add(
            OWN + "batching_max_runs",
            labels,
            partial(read_number, 1),
            "Batches that may run at once.",
        )

    def watch_queue(self, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Add a kind of queue, such as the batching queues, to the metric of waiting requests.

        Args:
          read: returns (model,) → the number of the model's requests that wait in queues of this
            kind.
        """
        self._queue_readers.append(read)

    def collect(self) -> Iterable[Metric]:
        """Return the present values of the metrics, with the names that Prometheus sees.

        If several processes serve, the values are those of all; the gauges of the others are up to
        a second old.
        """
        if not self._processes_directory:
            return self._registry.collect()
        self._gauges.publish(self._processes_directory)
        collector = MultiProcessCollector(None, self._processes_directory)  # type: ignore[no-untyped-call]
        return list(collector.collect())  # type: ignore[no-untyped-call]

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return render_page(self.collect(), self._dropped_labels)

    def recent_errors(self) -> list[RecentError]:
        """Return the latest errors of requests, the last one first."""
        return self._own.errors.entries()

    def first_value(self, name: str) -> int | None:
        """Return the value of the first series of a counter; None if no counter has this name.

        Args:
          name: the metric's name in TensorFlow Serving, "/tensorflow/serving/request_count".
        """
        collectors = [*vars(self._serving).values(), *vars(self._own).values()]
        if name not in {counter.name for counter in collectors if isinstance(counter, Counter)}:
            return None
        exported = exported_name(name).removesuffix("_total")
        for metric in self.collect():
            if metric.name == exported and metric.samples:
                first = min(metric.samples, key=lambda sample: tuple(sample.labels.values()))
                return int(first.value)
        return 0

    def _is_known(self, model: str) -> bool:
        # The name is empty for requests that name no model.
        return not model or self._is_configured(model)

    def _publish_gauges(self) -> None:
        while True:
            time.sleep(_PUBLISH_SECONDS)
            try:
                self._gauges.publish(self._processes_directory)
            except Exception:
                logger.exception("the gauges cannot be written for the other processes")

    def _read_queue_sizes(self) -> Mapping[Labels, float]:
        sizes: dict[Labels, float] = {}
        for read in self._queue_readers:
            for labels, size in read().items():
                sizes[labels] = sizes.get(labels, 0) + size
        return sizes
