import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpuserve.errors import InvalidSetting
from trainer.compat import install

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "import_line.py"


def run(script: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    # Without the tests' own choice of Keras: that it is made is the promise.
    kept = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    return subprocess.run(
        [sys.executable, str(script)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_line_of_the_program_gives_it_what_its_source_asks_for() -> None:
    done = run(PROGRAM)
    assert json.loads(done.stdout) == {
        "eager": False,
        "session": True,
        "inputs": True,
        "tpu": True,
        "own": "trainer.estimator.estimator",
        "same": True,
        "real": False,
    }
    [said] = [line for line in done.stderr.splitlines() if line.startswith("tpuserve: ")]
    assert "import_line.py:14 names tf.Session" in said
    assert "TPUSERVE_TF1=0 turns that off" in said


def test_a_program_that_is_to_have_tensorflow_2_has_the_names_in_it() -> None:
    done = run(PROGRAM, TPUSERVE_TF1="0")
    assert json.loads(done.stdout) == {
        "eager": True,
        "session": False,
        "inputs": False,
        "tpu": True,
        "own": "trainer.estimator.estimator",
        "same": True,
        "real": True,
    }
    assert "tpuserve: " not in done.stderr


def test_the_line_must_come_before_tensorflow(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text("import tensorflow as tf\nimport trainer.compat\ntf.Session()\n")
    done = run(script)
    assert done.returncode == 1
    assert f"{script} has imported tensorflow before trainer.compat" in done.stderr


@pytest.mark.parametrize(("asked", "tf1"), [("1", True), ("0", False), ("", None)])
def test_the_environment_says_which_version(
    asked: str, tf1: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(install.TF1_VARIABLE, asked)
    assert install.read_tf1_variable()["tf1"] is tf1


def test_an_environment_that_says_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(install.TF1_VARIABLE, "yes")
    with pytest.raises(InvalidSetting, match="TPUSERVE_TF1 is 'yes'. Set it to 1"):
        install.read_tf1_variable()


def test_a_resolver_without_a_name_finds_the_emulated_tpu(tmp_path: Path) -> None:
    script = tmp_path / "resolves.py"
    script.write_text(
        "import trainer.compat\n"
        "import tensorflow as tf\n"
        "print(repr(tf.distribute.cluster_resolver.TPUClusterResolver('').master()))\n"
    )
    assert run(script, TPUSERVE_EMULATED_TPU="2").stdout == "''\n"
