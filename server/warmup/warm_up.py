"""The warm-up of a version: every request of its file, run before clients' are.

Source: tensorflow_serving/servables/tensorflow/saved_model_warmup_util.cc.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from server.metrics import Metrics
from server.servables.servable import Model
from tpuserve.errors import (
    Code,
    DamagedSavedModel,
    DamagedWarmUp,
    InvalidInput,
    ModelLoadError,
    TpuserveError,
)
from tpuserve.saved_model import warm_up_file

MAX_RECORDS = 1000

RunRecord: TypeAlias = Callable[[Model, bytes], None]

logger = logging.getLogger(__name__)


class WarmUp:
    """Runs the requests in a version's warm-up file; a version without one is left as it is."""

    def __init__(
        self,
        iterations: int = 1,
        metrics: Metrics | None = None,
        *,
        threads: int = 1,
        check_method_names: bool = False,
        run_record: RunRecord | None = None,
    ) -> None:
        """Takes how to run them.

        Args:
          iterations: how often each request is run; 0 for once.
          metrics: where that is counted; None for nowhere that anybody sees.
          threads: how many requests of a version are run at once.
          check_method_names: as of `DataPlane`.
          run_record: runs a model on a serialized PredictionLog; None for what does it.
        """
        self._iterations = max(1, iterations)
        self._metrics = Metrics() if metrics is None else metrics
        self._threads = min(threads, MAX_RECORDS)
        self._check_method_names = check_method_names
        self._run_record = run_record

    def __call__(self, model: Model, directory: Path) -> None:
        """Warms a model up with what stands in its directory.

        Raises:
          DamagedWarmUp: the file holds no records, or is cut.
          InvalidInput: it holds too many.
          TpuserveError: a request that the model refuses.
        """
        path = directory / warm_up_file.PATH
        if not path.exists():
            return
        started = time.perf_counter_ns()
        status = "OK"
        try:
            count = self._run(model, path)
            logger.info("%s: warmed up with %d requests", directory, count)
        except TpuserveError as error:
            status = error.code.name
            raise
        except Exception as error:
            status = Code.INTERNAL.name
            raise ModelLoadError(f"the warm-up of {directory} has failed: {error}") from error
        finally:
            latency_us = (time.perf_counter_ns() - started) // 1000
            self._metrics.warmed_up(str(directory), status, latency_us)

    def _run(self, model: Model, path: Path) -> int:
        run_record = self._find_run_record()
        records = _read(path)
        taking, failed = threading.Lock(), threading.Event()

        def run() -> int:
            count = 0
            try:
                while not failed.is_set():
                    with taking:
                        record = next(records, None)
                    if record is None:
                        break
                    self._run_one(run_record, model, record, path)
                    count += 1
            except BaseException:
                failed.set()
                raise
            return count

        if self._threads == 1:
            return run()
        with ThreadPoolExecutor(self._threads, "warm-up") as pool:
            running = [pool.submit(run) for _ in range(self._threads)]
        return sum(each.result() for each in running)

    def _run_one(self, run_record: RunRecord, model: Model, record: bytes, path: Path) -> None:
        status = "OK"
        try:
            for _ in range(self._iterations):
                run_record(model, record)
        except TpuserveError as error:
            status = error.code.name
            raise
        finally:
            self._metrics.warm_up_record_read(str(path.parent.parent), status)

    def _find_run_record(self) -> RunRecord:
        if self._run_record is None:
            # Imported here because it brings TensorFlow.
            from server.warmup.replayer import Records

            self._run_record = Records(self._check_method_names)
        return self._run_record


def _read(path: Path) -> Iterator[bytes]:
    """The records of a file; an error after those that can be run."""
    try:
        for count, record in enumerate(warm_up_file.records(path)):
            if count == MAX_RECORDS:
                raise InvalidInput(
                    f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}"
                )
            yield record
    except DamagedSavedModel as error:
        raise DamagedWarmUp(
            f"{error} Please verify your warmup data is in TFRecord format."
        ) from error
