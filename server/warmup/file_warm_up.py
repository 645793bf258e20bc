"""Warms up a model version with the requests in its warm-up file.

Source: tensorflow_serving/servables/tensorflow/saved_model_warmup_util.cc.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from server.admission.cancellation import Cancellation
from server.metrics import Metrics
from server.servables.servable import Model
from tpuserve.errors import (
    Cancelled,
    Code,
    CodedError,
    DamagedSavedModel,
    InvalidInput,
    TpuserveError,
)
from tpuserve.saved_model import warm_up_file

MAX_RECORDS = 1000

RunRecord: TypeAlias = Callable[[Model, bytes, Cancellation], None]

logger = logging.getLogger(__name__)


class FileWarmUp:
    """Warms up model versions: runs each version on the requests in its warm-up file.

    A version without a warm-up file is not warmed up.

    Args:
      iterations: how many times each request is run; 0 means once.
      metrics: the registry that records the durations of warm-ups; None for a registry that
        nothing reads.
      check_method_names: whether the method_name of the signature must fit the kind of the
        request, such as Predict.
      run_record: takes a model, a serialised PredictionLog and a Cancellation; runs the model
        on the request, and stops when the Cancellation is set. None for a `WarmupReplayer`.
      timeout_seconds: how many seconds the warm-up of a version may take; 0 for no limit.
    """

    def __init__(
        self,
        iterations: int = 1,
        metrics: Metrics | None = None,
        *,
        threads: int = 1,
        check_method_names: bool = False,
        run_record: RunRecord | None = None,
        timeout_seconds: float = 0,
    ) -> None:
        self._iterations = max(1, iterations)
        self._metrics = Metrics() if metrics is None else metrics
        self._threads = min(threads, MAX_RECORDS)
        self._check_method_names = check_method_names
        self._run_record = run_record
        self._timeout_seconds = timeout_seconds

    def __call__(self, model: Model, directory: Path) -> None:
        """Warm up a version with the warm-up file in its directory, if there is one.

        Raises:
          InvalidInput: the file holds more than `MAX_RECORDS` records.
          CodedError: the warm-up has taken longer than `timeout_seconds`.
        """
        path = directory / warm_up_file.PATH
        if not path.exists():
            return
        started = time.perf_counter_ns()
        status = "OK"
        try:
            count = self._run_with_time_limit(model, path)
            logger.info("%s: warmed up with %d requests", directory, count)
        except TpuserveError as error:
            status = error.code.name
            raise
        except Exception as error:
            status = Code.INTERNAL.name
            raise CodedError(
                f"the warm-up of {directory} failed: {error}", Code.INTERNAL
            ) from error
        finally:
            latency_us = (time.perf_counter_ns() - started) // 1000
            self._metrics.warmed_up(str(directory), status, latency_us)

    def _run_with_time_limit(self, model: Model, path: Path) -> int:
        cancellation, seconds = Cancellation(), self._timeout_seconds
        timer = threading.Timer(seconds, cancellation.cancel)
        timer.daemon = True
        if seconds:
            timer.start()
        try:
            return self._run(model, path, cancellation)
        except Cancelled as error:
            raise CodedError(
                f"the requests of {path} have not ended in {seconds:g} s. Remove requests from the "
                f"file, or raise --load_timeout_seconds.",
                Code.DEADLINE_EXCEEDED,
            ) from error
        finally:
            timer.cancel()

    def _run(self, model: Model, path: Path, cancellation: Cancellation) -> int:
        run_record = self._find_run_record()
        records = enumerate(_read_records(path))
        read_lock, failed = threading.Lock(), threading.Event()

        def run() -> int:
            count = 0
            try:
                while not failed.is_set():
                    cancellation.raise_if_cancelled()
                    with read_lock:
                        numbered = next(records, None)
                    if numbered is None:
                        break
                    self._run_one(run_record, model, *numbered, path, cancellation)
                    count += 1
            except BaseException:
                failed.set()
                raise
            return count

        if self._threads == 1:
            return run()
        with ThreadPoolExecutor(self._threads, "warm-up") as pool:
            futures = [pool.submit(run) for _ in range(self._threads)]
        return sum(future.result() for future in futures)

    def _run_one(
        self,
        run_record: RunRecord,
        model: Model,
        number: int,
        record: bytes,
        path: Path,
        cancellation: Cancellation,
    ) -> None:
        status = "OK"
        try:
            for _ in range(self._iterations):
                run_record(model, record, cancellation)
        except Exception as error:
            error_type = type(error) if isinstance(error, TpuserveError) else CodedError
            failure = error_type(f"record {number} of {path}: {error}")
            failure.code = error.code if isinstance(error, TpuserveError) else Code.INTERNAL
            status = failure.code.name
            raise failure from error
        finally:
            self._metrics.warm_up_record_read(str(path.parent.parent), status)

    def _find_run_record(self) -> RunRecord:
        if self._run_record is None:
            # Import the replayer here and not at the top of the file, because it imports
            # TensorFlow.
            from server.warmup.replayer import WarmupReplayer

            self._run_record = WarmupReplayer(self._check_method_names)
        return self._run_record


def _read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a warm-up file, which are serialised PredictionLogs."""
    try:
        for count, record in enumerate(warm_up_file.read_warm_up_records(path)):
            if count == MAX_RECORDS:
                raise InvalidInput(
                    f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}"
                )
            yield record
    except DamagedSavedModel as error:
        raise CodedError(
            f"{error} Please verify your warmup data is in TFRecord format.", Code.DATA_LOSS
        ) from error
