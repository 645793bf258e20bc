"""Runs a model on all records of input files, and writes an output file for each input file."""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpuserve.errors import InvalidSetting
from tpuserve.prediction import formats
from tpuserve.prediction.batch import InputBatch, Position
from tpuserve.prediction.example_predictor import Predictor
from tpuserve.prediction.formats import REQUEST_FORMATS, InputFormat, OutputFormat
from tpuserve.prediction.output_directory import OutputDirectory, describe_run
from tpuserve.prediction.progress import Progress
from tpuserve.prediction.readers import READERS
from tpuserve.prediction.record_versions import RecordVersions
from tpuserve.prediction.writers import Writer, open_writer
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import Array, LoadedModel
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature, find_signature
from tpuserve.tags import TagSet, format_tags

logger = logging.getLogger(__name__)

DEFAULT_BATCH_SIZE = 128
SAVE_SECONDS = 30.0
"""The default time between two saves of an incomplete output file, in seconds."""

# The largest number of batches that may run or wait to be written. It limits the memory that their
# inputs and outputs need.
_MAX_WAITING = 4
# The number of batches that the model runs at the same time. While one run waits for Python or for
# an op that uses a single thread, the other runs use the remaining processor cores.
_CONCURRENT_RUNS = 2


@dataclass(frozen=True)
class PredictionReport:
    """The result of a batch prediction.

    Attributes:
      continued_files: the number of input files of which an earlier run had predicted a part.
      seconds: the time of the predictions in seconds, without the time to load the model.
    """

    files: int
    skipped_files: int
    continued_files: int
    rows: int
    seconds: float
    metagraph: str
    outputs: str

    @property
    def rows_per_second(self) -> float:
        """The number of rows that were predicted per second."""
        return self.rows / self.seconds if self.seconds else 0.0


def ignore_progress(done: int, total: int, step: str) -> None:
    """Do nothing; the default of the argument `progress` of `predict`."""


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
    record_versions: bool = False,
    save_seconds: float = SAVE_SECONDS,
    progress: Callable[[int, int, str], None] = ignore_progress,
) -> PredictionReport:
    """Run a model on all records of input files, and write an output file for each input file.

    An output file that an earlier call with the same arguments has completed is kept, and its input
    file is skipped.

    Args:
      batch_size: the largest number of rows (entries along the batch dimension) in one run of the
        model.
      tags: the exact tag set of the metagraph; None to select the metagraph by whether the machine
        has a TPU.
      record_versions: whether a request runs in the version that it names, whose directory stands
        beside `directory`; otherwise all requests run in `directory`.
      save_seconds: the least time between two saves of an incomplete output file, in seconds. A
        later call continues the file from its last save. 0 to save after each batch.
      progress: is called after each batch with the number of complete files, the number of all
        files, and a description of the current step.
    """
    directory = directory.absolute() if record_versions else directory
    if record_versions and not directory.name.isdecimal():
        raise InvalidSetting(
            f"--record-versions needs a base path, whose versions are directories named by "
            f"numbers; found {directory}. Give such a path, or leave out the option."
        )
    paths = formats.match_files(inputs)
    output_format.require_extra()
    run = describe_run(
        directory.parent if record_versions else directory,
        paths,
        signature_name,
        format_tags(tags) if tags else "",
        input_format,
        output_format,
    )
    with OutputDirectory(outputs, run, output_format.suffix) as output_directory:
        progress(0, len(paths), "loading the model")

        def load(path: Path) -> LoadedModel:
            return loader.load(path, tags, runtime=runtime, batch_sizes=(batch_size,))

        model = load(directory)
        versions = None
        try:
            signature = find_signature(model.signatures, signature_name)
            concurrent_runs = _CONCURRENT_RUNS
            writing = _find_writing(model.signatures, signature_name, paths, input_format)
            if writing:
                logger.warning(
                    "%s: %s; records run one at a time, in order, and from the state on disk, also "
                    "where an earlier run is continued",
                    directory,
                    writing,
                )
                batch_size = concurrent_runs = 1
            meter = _ProgressMeter(len(paths), progress)
            run_batch = Predictor(model, batch_size).run
            if record_versions:
                versions = RecordVersions(directory, model, load, batch_size)
                run_batch = versions.run
            for number, path in enumerate(paths):
                if output_directory.is_complete(number):
                    meter.skip_file()
                    continue
                earlier = output_directory.progress(number)
                start, size = (earlier.position, earlier.size) if earlier else (Position(), 0)
                file_format = input_format or formats.default_input_format(path)
                reader: Callable[..., Iterator[InputBatch]] = READERS[file_format]
                if versions and file_format in REQUEST_FORMATS:
                    reader = partial(reader, signatures_of_version=versions.signatures)
                batches = reader(path, model.signatures, signature_name, batch_size, start)
                open_output = partial(open_writer, output_format, signature=signature, size=size)
                save = partial(output_directory.save_progress, number)
                with (
                    output_directory.write(number) as temporary,
                    contextlib.closing(open_output(temporary)) as writer,
                ):
                    output = _Output(writer, save, save_seconds)
                    _predict_file(run_batch, batches, output, meter, concurrent_runs)
                meter.finish_file(is_continued=earlier is not None)
        finally:
            if versions:
                versions.close()
            model.close()
    return PredictionReport(
        len(paths),
        meter.skipped_files,
        meter.continued_files,
        meter.rows,
        meter.seconds,
        str(model.choice),
        str(outputs),
    )


class _Output:
    """Writes an output file, and saves it at intervals, so that a later run can continue it."""

    def __init__(
        self, writer: Writer, save: Callable[[Progress], None], save_seconds: float
    ) -> None:
        self._writer = writer
        self._save = save
        self._save_seconds = save_seconds
        self._last_save = time.monotonic()

    def write(self, batch: InputBatch, outputs: Mapping[str, Array]) -> None:
        """Write the outputs of a batch, and save the file if the last save is long enough ago."""
        self._writer.write(batch, outputs)
        is_due = time.monotonic() - self._last_save >= self._save_seconds
        if is_due and batch.end is not None:
            file = self._writer.sync()
            self._save(Progress(batch.end, file, file.stat().st_size))
            self._last_save = time.monotonic()


def _find_writing(
    signatures: Mapping[str, Signature],
    name: str,
    paths: Sequence[str],
    input_format: InputFormat | None,
) -> str:
    """Describe a write of the signatures that files may run; "" if these signatures only read."""
    kinds = {input_format or formats.default_input_format(path) for path in paths}
    names_signatures = kinds & REQUEST_FORMATS
    chosen = signatures if names_signatures else {name: signatures[name]}
    return next(
        (f"signature {name} {chosen[name].write}" for name in sorted(chosen) if chosen[name].write),
        "",
    )


def _predict_file(
    run_batch: Callable[[InputBatch], dict[str, Array]],
    batches: Iterator[InputBatch],
    output: _Output,
    meter: "_ProgressMeter",
    concurrent_runs: int,
) -> None:
    waiting: deque[Future[int]] = deque()
    with (
        ThreadPoolExecutor(concurrent_runs, "run-predictions") as runs,
        ThreadPoolExecutor(1, "write-predictions") as writes,
    ):
        try:
            for batch in batches:
                run = runs.submit(run_batch, batch)
                previous = waiting[-1] if waiting else None
                waiting.append(writes.submit(_write_batch, output, batch, run, previous))
                if len(waiting) > _MAX_WAITING:
                    meter.add_rows(waiting.popleft().result())
        finally:
            # Wait for all batches, also after an error of the reader. If an earlier batch has
            # failed, its error is raised instead of the reader's.
            while waiting:
                meter.add_rows(waiting.popleft().result())


def _write_batch(
    output: _Output,
    batch: InputBatch,
    run: Future[dict[str, Array]],
    previous: Future[int] | None,
) -> int:
    if previous is not None:
        previous.result()
    output.write(batch, run.result())
    return batch.rows


class _ProgressMeter:
    """Counts the finished files and rows of a batch prediction, and reports the progress."""

    def __init__(self, files: int, progress: Callable[[int, int, str], None]) -> None:
        self.rows = 0
        self.skipped_files = 0
        self.continued_files = 0
        self._files = files
        self._complete_files = 0
        self._progress = progress
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begin

    def add_rows(self, rows: int) -> None:
        """Count predicted rows of the current file, and report the progress."""
        self.rows += rows
        self._report()

    def skip_file(self) -> None:
        """Count an input file that an earlier run had completed, and report the progress."""
        self.skipped_files += 1
        self.finish_file()

    def finish_file(self, is_continued: bool = False) -> None:
        """Count the current file as complete, and report the progress."""
        self.continued_files += is_continued
        self._complete_files += 1
        self._report()

    def _report(self) -> None:
        rate = self.rows / max(self.seconds, 1e-9)
        step = f"{self.rows:,} rows, {rate:,.0f} rows/s"
        self._progress(self._complete_files, self._files, step)
