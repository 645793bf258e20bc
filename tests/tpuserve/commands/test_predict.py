"""`tpuserve predict`: its output, its errors, and a run that is killed and continued."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.preloaded.process import PreloadedProcess
from tests.tpuserve.prediction import models
from tpuserve.commands.predict import predict
from tpuserve.errors import NotFound, SignatureNotFound

# Only a process that hangs takes as long, in seconds.
TIME_LIMIT = 600


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(tmp_path_factory.mktemp("model") / "1")


def run_predict(*arguments: Any) -> Result:
    return CliRunner().invoke(predict, list(map(str, arguments)))


@pytest.mark.slow
def test_the_report_has_rows_and_rates(model: Path, tmp_path: Path) -> None:
    rows = models.values(3).tolist()
    paths = [models.write_lines(tmp_path / f"{name}.jsonl", rows) for name in "ab"]
    out = tmp_path / "out"
    result = run_predict(model, "--inputs", *paths, "--outputs", out)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("metagraph: {serve} on CPU")
    assert lines[1].startswith("6 rows in ")
    assert lines[2] == f"wrote 2 files to {out}"
    again = run_predict(model, "--inputs", *paths, "--outputs", out, "--json")
    data = json.loads(again.output)
    assert (data["rows"], data["files"], data["skipped_files"]) == (0, 2, 2)
    assert data["rows_per_second"] == 0


def test_errors_come_before_tensorflow_is_loaded(model: Path, tmp_path: Path) -> None:
    arguments = ("--inputs", tmp_path / "none", "--outputs", tmp_path / "out")
    assert isinstance(run_predict(model, *arguments).exception, NotFound)
    assert isinstance(run_predict(tmp_path / "none", *arguments).exception, NotFound)
    error = run_predict(model, *arguments, "--signature", "serve").exception
    assert isinstance(error, SignatureNotFound)
    assert str(error) == (
        f"no signature 'serve' in {model}; found examples, name, serving_default, total. "
        f"Name one of those with --signature."
    )
    path = models.write_lines(tmp_path / "rows.jsonl", [])
    result = run_predict(model, "--inputs", path, "--outputs", path)
    assert result.exit_code == 2
    assert f"Directory '{path}' is a file." in result.output


def test_a_missing_package_is_one_line(model: Path, tmp_path: Path) -> None:
    path = models.write_lines(tmp_path / "rows.jsonl", models.values(1).tolist())
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # An entry of None in sys.modules is a package that is not installed.
    (hidden / "sitecustomize.py").write_text("import sys; sys.modules['pyarrow'] = None\n")
    result = subprocess.run(
        [*COMMAND, str(model), "--inputs", str(path), "--outputs", str(tmp_path / "out"),
         "--output-format", "parquet"],
        env={**os.environ, "PYTHONPATH": str(hidden)},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr == (
        "Error: --output-format=parquet needs the package pyarrow, which is not installed. Run: "
        'pip install ".[parquet]"\n'
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_killed_run_continues_with_the_file_that_it_was_at(model: Path, tmp_path: Path) -> None:
    x = models.values(20)
    records = [models.example(row) for row in x]
    first = models.write_records(tmp_path / "a", records[:10])
    second = tmp_path / "b"
    # A pipe without a writer: the run waits there after the first file.
    os.mkfifo(second)
    out = tmp_path / "out"
    arguments = [str(model), "--inputs", str(first), str(second), "--outputs", str(out)]
    process = PreloadedProcess([*COMMAND, *arguments])
    complete = out / "predictions-00000-of-00002.tfrecord"
    try:
        deadline = time.monotonic() + TIME_LIMIT
        while not complete.exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert complete.exists()
    before = complete.stat()
    second.unlink()
    models.write_records(second, records[10:])
    result = run_predict(*arguments)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[1].startswith("10 rows in ")
    assert complete.stat() == before
    assert sorted(path.name for path in out.iterdir()) == [
        "predict.json",
        "predictions-00000-of-00002.tfrecord",
        "predictions-00001-of-00002.tfrecord",
    ]
    logs = [log for path in sorted(out.glob("*.tfrecord")) for log in models.read_logs(path)]
    np.testing.assert_array_equal(models.outputs(logs, "y"), 2 * x)


COMMAND = (sys.executable, "-m", "tpuserve", "predict")
