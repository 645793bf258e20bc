"""The request log: queues a sample of the requests, and writes them to files in a thread."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from server.config.model_config import RequestLogging
from server.dataplane.model_spec import ModelSpec
from server.dataplane.results import Classification, Prediction, Regression
from server.metrics import Metrics
from server.request_log.checks import check_logging_config
from server.request_log.files import FileSeries, RecordFiles
from server.request_log.spool import Spool
from server.request_log.uploader import Uploader
from server.servables.servable import Array
from tpuserve.errors import Code
from tpuserve.files.disk_cache import find_cache_directory

MAX_QUEUED_BYTES = 64 << 20
MAX_QUEUED = 1000
# The default of `max_total_bytes` of a log that is uploaded.
_SPOOL_BYTES = 1 << 30
# The time, in seconds, for which the log of a model writes nothing after its file could not be
# written.
_RETRY_SECONDS = 1

Encode: TypeAlias = Callable[[Any, RequestLogging, float], bytes]
"""(entry, configuration, time in seconds since 1970) → a serialised PredictionLog."""

logger = logging.getLogger(__name__)


class PredictLogEntry(NamedTuple):
    """A Predict request and its answer, in the queue of the request log.

    Attributes:
      inputs: the inputs that the client has sent: alias → array.
      output_filter: the aliases of the requested outputs; empty for all outputs.
    """

    answer: Prediction
    inputs: Mapping[str, Array]
    output_filter: tuple[str, ...]


class InferenceLogEntry(NamedTuple):
    """A Classify, Regress or MultiInference request and its answers, queued for the request log.

    Attributes:
      tasks: for MultiInference the pair (model specification, method name) of each task; empty for
        Classify and Regress.
    """

    tasks: tuple[tuple[ModelSpec, str], ...]
    answers: tuple[Classification | Regression, ...]
    examples: tuple[bytes, ...]


@dataclass
class _Outage:
    """A period in which the log of a model cannot be written, for example because the disk is full.

    Attributes:
      lost: the number of log entries that were lost so far.
      retry_seconds: the time, in seconds since 1970, before which no further entry is written.
    """

    lost: int = 0
    retry_seconds: float = 0


class RequestLog:
    """Writes a sample of the requests to files, in a separate thread.

    Another thread uploads the files of the logs whose destination is a URL.

    No request waits for the log, or fails because of the log. If requests arrive faster than the
    thread can write them, some are dropped from the log and counted.

    Args:
      metrics: counts the logged and the dropped requests; None for new metrics that nobody
        reads.
      encode: takes a log entry, the log configuration of the model, and the time of the request in
        seconds since 1970.
      sample: returns a random number from 0 to 1, for the choice of the logged requests.
      clock: returns the time in seconds since 1970.
      spool_directory: the directory of the files that wait for their upload; None for one in
        the user's cache directory.
    """

    def __init__(
        self,
        metrics: Metrics | None = None,
        *,
        encode: Encode | None = None,
        sample: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
        spool_directory: Path | None = None,
    ) -> None:
        self._metrics = Metrics() if metrics is None else metrics
        self._encode = encode
        self._sample = sample
        self._clock = clock
        self._models: Mapping[str, RequestLogging] = {}
        self._spool = Spool(spool_directory or find_cache_directory() / "request-log")
        self._uploader: Uploader | None = None
        self._files = RecordFiles(clock, on_spooled=self._upload)
        self._queue: deque[tuple[str, RequestLogging, Any, float, int]] = deque()
        self._queued_bytes = 0
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._is_failing = False
        self._is_reconfigured = False
        # The models whose log cannot be written at present, for example because the disk is full:
        # model name → how many entries were lost, and when to try again.
        self._outages: dict[str, _Outage] = {}

    def configure(self, models: Mapping[str, RequestLogging]) -> None:
        """Set the models whose requests are logged. This replaces earlier settings.

        `models` is model name → configuration of the model's log.
        """
        for model, logging_config in models.items():
            check_logging_config(model, logging_config)
        if models and self._encode is None:
            self._encode = _import_encode()
        with self._condition:
            self._models = dict(models)
            self._is_reconfigured = True
            self._condition.notify()
            is_remote = any(logging_config.is_remote for logging_config in models.values())
            if is_remote and self._uploader is None and not self._is_closing:
                uploader = Uploader(self._spool, self._metrics)
                uploader.start()
                self._uploader = uploader
            if models and self._thread is None and not self._is_closing:
                thread = threading.Thread(target=self._write_queue, name="request-log", daemon=True)
                thread.start()
                self._thread = thread

    def should_log(self, model: str) -> bool:
        """Return whether to log the present request of a model.

        The choice is random; the sampling rate of the model is the probability of True.
        """
        config = self._models.get(model)
        return config is not None and self._sample() < config.sampling_rate

    def predict(
        self, answer: Prediction, inputs: Mapping[str, Array], output_filter: Sequence[str]
    ) -> None:
        """Put a Predict request into the queue of the log.

        Args:
          inputs: alias → array, with the shape and the dtype of the request.
          output_filter: the aliases of the requested outputs; empty for all outputs.
        """
        size = sum(map(_size, (*inputs.values(), *answer.outputs.values())))
        self._put(answer.model, PredictLogEntry(answer, inputs, tuple(output_filter)), size)

    def classify(self, answer: Classification, examples: Sequence[bytes]) -> None:
        """Put a Classify request into the queue of the log.

        `examples` are serialised tf.train.Example messages.
        """
        self._put(
            answer.model, InferenceLogEntry((), (answer,), tuple(examples)), sum(map(len, examples))
        )

    def regress(self, answer: Regression, examples: Sequence[bytes]) -> None:
        """Put a Regress request into the queue of the log.

        `examples` are serialised tf.train.Example messages.
        """
        self._put(
            answer.model, InferenceLogEntry((), (answer,), tuple(examples)), sum(map(len, examples))
        )

    def multi_inference(
        self,
        tasks: Sequence[tuple[ModelSpec, str]],
        answers: Sequence[Classification | Regression],
        examples: Sequence[bytes],
    ) -> None:
        """Put a MultiInference request into the queue of the log."""
        entry = InferenceLogEntry(tuple(tasks), tuple(answers), tuple(examples))
        self._put(answers[0].model, entry, sum(map(len, examples)))

    def close(self, timeout_seconds: float | None = None) -> None:
        """Write the queued requests, upload the files that wait for it, and end the threads.

        Later requests are not logged. `timeout_seconds` is the longest wait for the threads; None
        for no limit.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        if self._uploader is not None:
            self._uploader.close(None if deadline is None else max(0, deadline - time.monotonic()))

    def _put(self, model: str, entry: Any, size: int) -> None:
        with self._condition:
            config = self._models.get(model)
            if config is None:
                return  # Drop the entry: a reload has just turned the log of the model off.
            if (
                self._is_closing
                or len(self._queue) >= MAX_QUEUED
                or self._queued_bytes + size > MAX_QUEUED_BYTES
            ):
                is_queued = False
            else:
                is_queued = True
                self._queue.append((model, config, entry, self._clock(), size))
                self._queued_bytes += size
                self._condition.notify()
        if not is_queued:
            self._metrics.request_logged(model, Code.RESOURCE_EXHAUSTED.name)

    def _write_queue(self) -> None:
        while True:
            seconds = self._files.close_old()
            with self._condition:
                self._condition.wait_for(
                    lambda: self._queue or self._is_reconfigured or self._is_closing, seconds
                )
                if not self._queue and self._is_reconfigured:
                    self._is_reconfigured = False
                    self._files.close_except(
                        {self._series(*model) for model in self._models.items()}
                    )
                    continue
                if not self._queue:
                    if self._is_closing:
                        break
                    continue
                model, config, entry, time_seconds, size = self._queue.popleft()
            self._write_entry(model, config, entry, time_seconds)
            del entry
            # Subtract the size of the entry from the queued bytes after the write, and not before,
            # because the entry is in memory until then.
            with self._condition:
                self._queued_bytes -= size
        self._files.close()

    def _write_entry(
        self, model: str, config: RequestLogging, entry: Any, time_seconds: float
    ) -> None:
        assert self._encode is not None, "an entry was queued before configure"
        series = self._series(model, config)
        outage = self._outages.get(model)
        if outage is not None and time_seconds < outage.retry_seconds:
            outage.lost += 1
            self._metrics.request_logged(model, Code.UNKNOWN.name)
            return
        try:
            record = self._encode(entry, config, time_seconds)
            if series.is_spooled:
                self._spool.open()
            self._files.write(series, record)
        except OSError as error:
            self._metrics.request_logged(model, Code.UNKNOWN.name)
            if outage is None:
                outage = self._outages[model] = _Outage()
                logger.error(
                    "request log of %s: stopped, cannot write to %s: %s. It goes on once the files "
                    "can be written, for example when the disk has room.",
                    model,
                    series.prefix,
                    error.strerror or error,
                )
            outage.lost += 1
            outage.retry_seconds = time_seconds + _RETRY_SECONDS
        except Exception as error:
            self._metrics.request_logged(model, Code.UNKNOWN.name)
            # Write only the first of several errors in a row to the server's log.
            if not self._is_failing:
                logger.error("request log of %s: cannot encode a request: %s", model, error)
            self._is_failing = True
        else:
            self._is_failing = False
            self._metrics.request_logged(model, "OK")
            if outage is not None:
                del self._outages[model]
                logger.info(
                    "request log of %s: goes on; %d requests were not logged", model, outage.lost
                )

    def _series(self, model: str, config: RequestLogging) -> FileSeries:
        prefix, format, limit = config.filename_prefix, config.format, config.max_total_bytes
        if not config.is_remote:
            return FileSeries(model, prefix, format, max_total_bytes=limit)
        return FileSeries(
            model,
            self._spool.prefix(model, prefix),
            format,
            self._spool.writer,
            limit or _SPOOL_BYTES,
            is_spooled=True,
        )

    def _upload(self, path: Path) -> None:
        assert self._uploader is not None, "a file was spooled before configure"
        self._uploader.add(path)


def _import_encode() -> Encode:
    # This function is called when the log is configured, so that the import of TensorFlow does not
    # delay the first logged request.
    from tpuserve.runtime import serving_import

    serving_import.import_tensorflow_for_serving()
    from server.request_log.records import encode

    return encode


def _size(array: Array) -> int:
    strings: Iterable[Any] = array.flat if array.dtype == object else ()
    return array.nbytes + sum(map(len, strings))
