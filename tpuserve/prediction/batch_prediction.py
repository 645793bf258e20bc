"""Predicts all records of files, and writes a file of outputs for each."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tpuserve.prediction import formats
from tpuserve.prediction.batch import Batch
from tpuserve.prediction.formats import InputFormat, OutputFormat
from tpuserve.prediction.output_directory import OutputDirectory, describe_run
from tpuserve.prediction.predictor import Predictor
from tpuserve.prediction.readers import READERS
from tpuserve.prediction.writers import Writer, open_writer
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, find_signature
from tpuserve.tags import TagSet, format_tags

DEFAULT_BATCH_SIZE = 128

# The number of batches that may run or wait to be written, which bounds the memory.
_MAX_WAITING = 4
# While one run waits for a thread of Python or for an op of one thread, another one uses the
# processors.
_CONCURRENT_RUNS = 2


@dataclass(frozen=True)
class PredictionReport:
    """The result of a batch prediction.

    Attributes:
      files: the number of input files.
      skipped_files: the number of input files whose outputs an earlier run has completed.
      rows: the number of rows that this run has predicted.
      seconds: the time of the predictions, without the load of the model.
      metagraph: the metagraph, the device and the runtime, and why they were selected.
      outputs: the directory of the output files.
    """

    files: int
    skipped_files: int
    rows: int
    seconds: float
    metagraph: str
    outputs: str

    @property
    def rows_per_second(self) -> float:
        """The rows predicted per second."""
        return self.rows / self.seconds if self.seconds else 0.0


def ignore_progress(done: int, total: int, step: str) -> None:
    """Ignore a report of progress; the arguments are those of `progress` in `predict`."""


def predict(
    directory: Path,
    inputs: Sequence[str],
    outputs: Path,
    *,
    signature_name: str = DEFAULT_SIGNATURE,
    input_format: InputFormat | None = None,
    output_format: OutputFormat = OutputFormat.PREDICTION_LOGS,
    batch_size: int = DEFAULT_BATCH_SIZE,
    tags: TagSet | None = None,
    runtime: str | None = None,
    progress: Callable[[int, int, str], None] = ignore_progress,
) -> PredictionReport:
    """Predict all records of files.

    Output files that an earlier call with the same arguments has completed are left as they are.

    Args:
      directory: the directory of the SavedModel.
      inputs: paths or patterns of the input files.
      outputs: the directory of the output files.
      signature_name: the signature to run.
      input_format: the format of the input files; None if their names decide.
      output_format: the format of the output files.
      batch_size: the number of rows of a run of the model.
      tags: the exact tag set of the metagraph; None leaves the selection to `tpuserve.select`.
      runtime: a name in `tpuserve.runtime.registry`; None for the default runtime.
      progress: is called after each batch with the number of complete files, the number of all
        files, and a description of the current step.

    Raises:
      InputFileNotFound: a pattern matches no file.
      OutputOfAnotherRun: the output directory has other files.
      ExtraNotInstalled: the package of the output format is missing.
      SignatureNotFound: the model has no such signature.
      TpuserveError: the model cannot be loaded, a file cannot be read, a record does not fit the
        signature, or the run of the model fails. The outputs of the earlier files are complete.
    """
    paths = formats.match_files(inputs)
    output_format.require_extra()
    run = describe_run(
        directory,
        paths,
        signature_name,
        format_tags(tags) if tags else "",
        input_format,
        output_format,
    )
    with OutputDirectory(outputs, run, output_format.suffix) as output_directory:
        progress(0, len(paths), "loading the model")
        model = loader.load(directory, tags, runtime=runtime, batch_sizes=(batch_size,))
        try:
            signature = find_signature(model.signatures, signature_name)
            meter = _ProgressMeter(len(paths), progress)
            predictor = Predictor(model, batch_size)
            for number, path in enumerate(paths):
                if output_directory.is_complete(number):
                    meter.skip_file()
                    continue
                reader = READERS[input_format or formats.default_input_format(path)]
                batches = reader(path, model.signatures, signature_name, batch_size)
                with (
                    output_directory.write(number) as temporary,
                    contextlib.closing(open_writer(output_format, temporary, signature)) as writer,
                ):
                    _predict_file(predictor, batches, writer, meter)
                meter.finish_file()
        finally:
            model.close()
    return PredictionReport(
        len(paths),
        meter.skipped_files,
        meter.rows,
        meter.seconds,
        str(model.choice),
        str(outputs),
    )


def _predict_file(
    predictor: Predictor, batches: Iterator[Batch], writer: Writer, meter: "_ProgressMeter"
) -> None:
    """Predict the batches of a file; other threads run the model and write the outputs."""
    waiting: deque[Future[int]] = deque()
    with (
        ThreadPoolExecutor(_CONCURRENT_RUNS, "run-predictions") as runs,
        ThreadPoolExecutor(1, "write-predictions") as writes,
    ):
        try:
            for batch in batches:
                run = runs.submit(predictor.run, batch)
                previous = waiting[-1] if waiting else None
                waiting.append(writes.submit(_write, writer, batch, run, previous))
                if len(waiting) > _MAX_WAITING:
                    meter.add_rows(waiting.popleft().result())
        finally:
            # An error of a batch is raised before an error of the reader in a later batch.
            while waiting:
                meter.add_rows(waiting.popleft().result())


def _write(
    writer: Writer,
    batch: Batch,
    run: Future[dict[str, Array]],
    previous: Future[int] | None,
) -> int:
    """Write the outputs of a batch when its run ends; return the number of its rows.

    Args:
      writer: the output file.
      batch: the records.
      run: the run of the batch.
      previous: the write of the batch before, whose error is raised again, so that the first error
        of a file is the error of all writes after it.
    """
    if previous is not None:
        previous.result()
    writer.write(batch, run.result())
    return batch.rows


class _ProgressMeter:
    """Counts files and rows, and reports them.

    Attributes:
      rows: the rows so far.
      skipped_files: the files that were complete before.
    """

    def __init__(self, files: int, progress: Callable[[int, int, str], None]) -> None:
        self.rows = 0
        self.skipped_files = 0
        self._files = files
        self._complete_files = 0
        self._progress = progress
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The time since the beginning, in seconds."""
        return time.perf_counter() - self._begin

    def add_rows(self, rows: int) -> None:
        """Add rows of the current file."""
        self.rows += rows
        self._report()

    def skip_file(self) -> None:
        """Count a file that was complete before."""
        self.skipped_files += 1
        self.finish_file()

    def finish_file(self) -> None:
        """Count a file."""
        self._complete_files += 1
        self._report()

    def _report(self) -> None:
        rate = self.rows / max(self.seconds, 1e-9)
        step = f"{self.rows:,} rows, {rate:,.0f} rows/s"
        self._progress(self._complete_files, self._files, step)
