"""A run that was stopped in the middle of a file continues there, and gives the same outputs."""

import gzip
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.preloaded.process import run_preloaded
from tests.tpuserve.prediction import models
from tpuserve.errors import Code, CodedError
from tpuserve.prediction.batch_prediction import PredictionReport, predict
from tpuserve.prediction.formats import InputFormat, OutputFormat
from tpuserve.prediction.writers import parquet

ROWS = 50
STOP_ROWS = 20
GROUP_ROWS = 8
"""The rows of a row group of Parquet in these tests: 6 groups and a part of one in ROWS rows."""

# Predicts a file once in each format of outputs, all at the same time. When each run has written
# STOP_ROWS rows, the process kills itself.
PROGRAM = f"""
import os, signal, sys, threading
from pathlib import Path
from tpuserve.prediction.batch_prediction import predict
from tpuserve.prediction.formats import OutputFormat
from tpuserve.prediction.writers import parquet

parquet._GROUP_ROWS = {GROUP_ROWS}
model, path, outputs = sys.argv[1:]
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
barrier = threading.Barrier(len(OutputFormat), kill)

def wait(done, total, step):
    rows = step.split()[0]
    if rows.isdecimal() and int(rows) >= {STOP_ROWS}:
        barrier.wait(300)

def run(output_format):
    outputs_of_format = Path(outputs) / output_format.value
    predict(Path(model), [path], outputs_of_format, output_format=output_format, batch_size=4,
            save_seconds=0, progress=wait)

threads = [threading.Thread(target=run, args=(each,)) for each in OutputFormat]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


class Stop(Exception):
    """Ends a run in the middle of a file, as a signal of the user does."""


def stop(num_complete: int, total: int, step: str) -> None:
    """Raise `Stop` when enough rows are written; the progress of `predict`."""
    rows = step.split()[0]
    if rows.isdecimal() and int(rows) >= STOP_ROWS:
        raise Stop


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(tmp_path_factory.mktemp("model") / "1")


def write_examples(path: Path) -> Path:
    return models.write_records(path, [models.example(row) for row in models.values(ROWS)])


def run_predict(model: Path, path: Path, outputs: Path, **options: Any) -> PredictionReport:
    return predict(model, [str(path)], outputs, **{"batch_size": 4, **options})


def read_output(directory: Path) -> bytes:
    """Return the output file of a directory, which has no other file than predict.json."""
    description, output = sorted(directory.iterdir())
    assert description.name == "predict.json"
    return output.read_bytes()


@pytest.mark.slow
def test_killed_process_is_continued_in_each_format_of_outputs(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_GROUP_ROWS", GROUP_ROWS)
    path = write_examples(tmp_path / "data")
    killed_run = run_preloaded(["-c", PROGRAM, str(model), str(path), str(tmp_path / "killed")])
    assert killed_run.returncode == -signal.SIGKILL
    for output_format in OutputFormat:
        killed, whole = tmp_path / "killed" / output_format.value, tmp_path / output_format.value
        report = run_predict(model, path, killed, output_format=output_format)
        assert (report.continued_files, report.skipped_files) == (1, 0)
        assert 0 < report.rows <= ROWS - STOP_ROWS
        assert run_predict(model, path, whole, output_format=output_format).rows == ROWS
        assert read_output(killed) == read_output(whole)


def write_requests(path: Path) -> Path:
    """Write requests of several rows, of which a few are merged, and some run alone."""
    x = models.values(ROWS)
    requests = [
        models.request(x[begin : begin + 2], "total" if begin % 10 == 0 else "")
        for begin in range(0, ROWS, 2)
    ]
    return models.write_records(path, [request.SerializeToString() for request in requests])


def write_lines(path: Path) -> Path:
    """Write JSON lines with empty lines between them."""
    lines = models.write_lines(path, models.values(ROWS).tolist()).read_text().splitlines()
    path.write_text("".join(f"{line}\n\n\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("write", "input_format", "is_compressed"),
    [
        (write_examples, InputFormat.EXAMPLES, True),
        (write_requests, InputFormat.REQUESTS, False),
        (write_lines, InputFormat.JSON_LINES, True),
    ],
)
def test_stopped_run_is_continued_in_each_format_of_inputs(
    model: Path,
    tmp_path: Path,
    write: Callable[[Path], Path],
    input_format: InputFormat,
    is_compressed: bool,
) -> None:
    path = write(tmp_path / "data")
    if is_compressed:
        path = path.rename(tmp_path / "data.gz")
        path.write_bytes(gzip.compress(path.read_bytes()))
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    with pytest.raises(Stop):
        run_predict(model, path, stopped, input_format=input_format, save_seconds=0, progress=stop)
    report = run_predict(model, path, stopped, input_format=input_format)
    rows = run_predict(model, path, whole, input_format=input_format).rows
    assert (report.continued_files, 0 < report.rows <= rows - STOP_ROWS) == (1, True)
    assert read_output(stopped) == read_output(whole)


def test_directory_with_a_part_of_a_file_is_refused_to_other_runs(
    model: Path, tmp_path: Path
) -> None:
    path, other = write_examples(tmp_path / "data"), write_examples(tmp_path / "other")
    with pytest.raises(Stop):
        run_predict(model, path, tmp_path / "out", save_seconds=0, progress=stop)
    with pytest.raises(
        CodedError,
        match="differs in: inputs",
        check=lambda error: error.code is Code.FAILED_PRECONDITION,
    ):
        run_predict(model, other, tmp_path / "out")
    assert run_predict(model, path, tmp_path / "out").continued_files == 1


def change_input(path: Path, out: Path) -> None:
    os.utime(path, ns=(0, 0))


def cut_output(path: Path, out: Path) -> None:
    (output,) = out.glob(".temp-*.tfrecord")
    output.write_bytes(output.read_bytes()[:1000])


def damage_progress(path: Path, out: Path) -> None:
    (progress,) = out.glob(".temp-*.progress")
    progress.write_text("{")


def remove_description(path: Path, out: Path) -> None:
    (out / "predict.json").unlink()


@pytest.mark.parametrize("change", [change_input, cut_output, damage_progress, remove_description])
def test_part_that_may_not_fit_is_written_again(
    model: Path, tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    path, out = write_examples(tmp_path / "data"), tmp_path / "out"
    with pytest.raises(Stop):
        run_predict(model, path, out, save_seconds=0, progress=stop)
    change(path, out)
    report = run_predict(model, path, out)
    assert (report.continued_files, report.rows) == (0, ROWS)
    assert len(models.read_logs(out / "predictions-00000-of-00001.tfrecord")) == ROWS


def test_run_that_fails_before_it_has_saved_a_part_leaves_nothing(
    model: Path, tmp_path: Path
) -> None:
    with pytest.raises(Stop):
        run_predict(model, write_examples(tmp_path / "data"), tmp_path / "out", progress=stop)
    assert not (tmp_path / "out").exists()
