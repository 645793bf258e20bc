"""What takes requests to be written down, and a thread that writes them."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from server.config.model_config import RequestLogging
from server.dataplane.model_spec import Target
from server.dataplane.results import Classification, Prediction, Regression
from server.metrics import Metrics
from server.request_log import settings
from server.request_log.files import RecordFiles
from server.servables.servable import Array
from tpuserve.errors import Code

MAX_WAITING_BYTES = 64 << 20
MAX_WAITING = 1000

Encode: TypeAlias = Callable[[Any, RequestLogging, float], bytes]
"""What happened, how it is logged, and when in seconds since 1970 → a PredictionLog."""

logger = logging.getLogger(__name__)


class Predicted(NamedTuple):
    """A Predict request and its answer."""

    answer: Prediction
    inputs: Mapping[str, Array]
    output_filter: tuple[str, ...]


class Inferred(NamedTuple):
    """A Classify, Regress or MultiInference request and its answer or answers."""

    tasks: tuple[tuple[Target, str], ...]
    answers: tuple[Classification | Regression, ...]
    examples: tuple[bytes, ...]


class RequestLog:
    """Writes a share of the requests to files of records, in a thread of its own.

    A request never waits for it and never fails by it: what comes faster than it can be written
    is left out, and counted as such.
    """

    def __init__(
        self,
        metrics: Metrics | None = None,
        *,
        encode: Encode | None = None,
        sample: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Makes a log that writes nothing until it is configured.

        Args:
          encode: turns what happened into a record; None for PredictionLog messages.
          sample: a random number from 0 to 1.
          clock: seconds since 1970.
        """
        self._metrics = Metrics() if metrics is None else metrics
        self._encode = encode
        self._sample = sample
        self._clock = clock
        self._models: Mapping[str, RequestLogging] = {}
        self._files = RecordFiles(clock)
        self._waiting: deque[tuple[str, RequestLogging, Any, float, int]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._is_failing = False
        self._is_reconfigured = False

    def configure(self, models: Mapping[str, RequestLogging]) -> None:
        """Logs these models from here on, each in its way, and no others.

        Raises:
          InvalidConfig: no log can be written in that way; all stays as it was.
        """
        for model, logging_config in models.items():
            settings.check(model, logging_config)
        if models and self._encode is None:
            self._encode = _find_encode()
        with self._changed:
            self._models = dict(models)
            self._is_reconfigured = True
            self._changed.notify()
            if models and self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._write, name="request-log", daemon=True)
                self._thread.start()

    def wants(self, model: str) -> bool:
        """Whether the request just answered is one to write down."""
        config = self._models.get(model)
        return config is not None and self._sample() < config.sampling_rate

    def predict(
        self, answer: Prediction, inputs: Mapping[str, Array], output_filter: Sequence[str]
    ) -> None:
        """Writes down a Predict request."""
        size = sum(map(_size, (*inputs.values(), *answer.outputs.values())))
        self._put(answer.model, Predicted(answer, inputs, tuple(output_filter)), size)

    def classify(self, answer: Classification, examples: Sequence[bytes]) -> None:
        """Writes down a Classify request."""
        self._put(answer.model, Inferred((), (answer,), tuple(examples)), sum(map(len, examples)))

    def regress(self, answer: Regression, examples: Sequence[bytes]) -> None:
        """Writes down a Regress request."""
        self._put(answer.model, Inferred((), (answer,), tuple(examples)), sum(map(len, examples)))

    def multi_inference(
        self,
        tasks: Sequence[tuple[Target, str]],
        answers: Sequence[Classification | Regression],
        examples: Sequence[bytes],
    ) -> None:
        """Writes down a MultiInference request."""
        what = Inferred(tuple(tasks), tuple(answers), tuple(examples))
        self._put(answers[0].model, what, sum(map(len, examples)))

    def close(self, timeout_seconds: float | None = None) -> None:
        """Writes what waits, and ends the thread; what comes later is left out."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _put(self, model: str, what: Any, size: int) -> None:
        with self._changed:
            config = self._models.get(model)
            if config is None:
                return  # a reload has come between
            if (
                self._is_closing
                or len(self._waiting) >= MAX_WAITING
                or self._waiting_bytes + size > MAX_WAITING_BYTES
            ):
                is_taken = False
            else:
                is_taken = True
                self._waiting.append((model, config, what, self._clock(), size))
                self._waiting_bytes += size
                self._changed.notify()
        if not is_taken:
            self._metrics.request_logged(model, Code.RESOURCE_EXHAUSTED.name)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting or self._is_reconfigured or self._is_closing
                )
                if not self._waiting and self._is_reconfigured:
                    self._is_reconfigured = False
                    self._files.keep(
                        {(name, each.filename_prefix) for name, each in self._models.items()}
                    )
                    continue
                if not self._waiting:
                    break
                model, config, what, when, size = self._waiting.popleft()
            self._try_to_write(model, config, what, when)
            del what
            # Counted until here: the bytes are held as long as they are being written.
            with self._changed:
                self._waiting_bytes -= size
        self._files.close()

    def _try_to_write(self, model: str, config: RequestLogging, what: Any, when: float) -> None:
        assert self._encode is not None, "written before it is configured"
        try:
            record = self._encode(what, config, when)
            self._files.write(model, config.filename_prefix, record)
        except Exception as error:
            self._metrics.request_logged(model, Code.UNKNOWN.name)
            # Once until one works again: a full disk is told in one line, not in one a request.
            if not self._is_failing:
                logger.error("request log of %s: cannot write: %s", model, error)
            self._is_failing = True
        else:
            self._is_failing = False
            self._metrics.request_logged(model, "OK")


def _find_encode() -> Encode:
    # Imported here because it brings TensorFlow, and not by the first request, which would wait.
    from tpuserve.runtime import tf_logging

    tf_logging.import_tensorflow()
    from server.request_log.records import encode

    return encode


def _size(array: Array) -> int:
    strings: Iterable[Any] = array.flat if array.dtype == object else ()
    return array.nbytes + sum(map(len, strings))
