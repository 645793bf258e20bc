import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trainer.migration import samples
from trainer.migration.command import migrate

RUNS = "import tensorflow as tf\ntf.Session()\n"
GONE = "import tensorflow as tf\ntf.contrib.gan.gan_model()\n"


def run_migrate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(migrate, list(map(str, arguments)), standalone_mode=False)


def test_the_last_line_is_the_command(tmp_path: Path) -> None:
    script = samples.write_file(tmp_path, "a.py", RUNS)
    result = run_migrate(script)
    assert result.return_value == 0
    assert result.output.splitlines()[-1] == f"  tpuserve run {script}"


def test_lines_are_neither_broken_nor_cut_where_they_are_piped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    (line,) = [
        line
        for line in run_migrate(samples.write_file(tmp_path, "a.py", GONE)).output.splitlines()
        if line.endswith("tensorflow-gan.")
    ]
    assert "\x1b" not in line


@pytest.mark.parametrize("source", [GONE, "import nobody_has_this", "print 'x'"])
def test_the_status_is_1_where_something_stops_the_program(tmp_path: Path, source: str) -> None:
    script = samples.write_file(tmp_path, "a.py", source)
    assert run_migrate(script).return_value == 1
    assert run_migrate("--json", script).return_value == 1


def test_as_json_all_programs_are_one_object(tmp_path: Path) -> None:
    samples.write_file(tmp_path, "a.py", RUNS)
    samples.write_file(tmp_path, "b.py", GONE)
    report = json.loads(run_migrate("--json", tmp_path).output)
    assert (report["version"], report["runs"]) == (1, False)
    first, second = report["programs"]
    assert first["command"] == f"tpuserve run {tmp_path / 'a.py'}"
    assert first["findings"][1] == {
        "file": str(tmp_path / "a.py"),
        "lines": [2],
        "written": "tf.Session",
        "name": "tensorflow.Session",
        "kind": "works",
        "says": "",
        "is_reached": True,
    }
    assert second["counts"] == {"works": 1, "supplied": 0, "gone": 1, "unknown": 0, "missing": 0}


def test_only_this_file_leaves_out_what_it_imports(tmp_path: Path) -> None:
    script = samples.write_file(tmp_path, "a.py", "import model")
    samples.write_file(tmp_path, "model.py", GONE)
    assert run_migrate(script).return_value == 1
    assert run_migrate("--only-this-file", script).return_value == 0


def test_what_follows_two_dashes_are_arguments_of_the_program(tmp_path: Path) -> None:
    source = "flags.DEFINE_bool('gone', True, '')\nif FLAGS.gone: tf.gone_name()\n"
    script = samples.write_file(tmp_path, "a.py", "import tensorflow as tf\n" + source)
    assert run_migrate(script).return_value == 1
    result = run_migrate("--json", script, "--", "--gone=False")
    assert result.return_value == 0
    [program] = json.loads(result.output)["programs"]
    assert program["command"] == f"tpuserve run {script} --gone=False"


def test_a_script_that_is_not_there_is_not_understood() -> None:
    assert "does not exist" in str(run_migrate("gone.py").exception)
