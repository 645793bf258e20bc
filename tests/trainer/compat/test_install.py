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


def run_script(script: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    # The tests set this variable themselves; here `install` must do so.
    inherited = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    return subprocess.run(
        [sys.executable, str(script)],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_import_line_gives_the_program_the_version_that_its_source_uses() -> None:
    process = run_script(PROGRAM)
    assert json.loads(process.stdout) == {
        "eager": False,
        "session": True,
        "inputs": True,
        "tpu": True,
        "own": "trainer.estimator.estimator",
        "same": True,
        # In programs of TensorFlow 1, a resolver without a name is this machine.
        "masters": ["", ""],
        "real": False,
    }
    [message] = [line for line in process.stderr.splitlines() if line.startswith("tpuserve: ")]
    assert "import_line.py:16 names tf.Session" in message
    assert "TPUSERVE_TF1=0 turns that off" in message


def test_names_are_added_to_tensorflow_2_too() -> None:
    process = run_script(PROGRAM, TPUSERVE_TF1="0")
    assert json.loads(process.stdout) == {
        "eager": True,
        "session": False,
        "inputs": False,
        "tpu": True,
        "own": "trainer.estimator.estimator",
        "same": True,
        # A resolver without a name is this machine.
        "masters": ["", ""],
        "real": True,
    }
    assert "tpuserve: " not in process.stderr


def test_import_line_must_come_before_tensorflow(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text("import tensorflow as tf\nimport trainer.compat\ntf.Session()\n")
    process = run_script(script)
    assert process.returncode == 1
    assert f"{script} has imported tensorflow before trainer.compat" in process.stderr


@pytest.mark.parametrize(("value", "tf1"), [("1", True), ("0", False), ("", None)])
def test_environment_sets_the_version(
    value: str, tf1: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(install.TF1_VARIABLE, value)
    assert install.read_tf1_variable()["tf1"] is tf1


def test_other_value_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(install.TF1_VARIABLE, "yes")
    with pytest.raises(InvalidSetting, match="TPUSERVE_TF1 is 'yes'. Set it to 1"):
        install.read_tf1_variable()


def test_resolver_with_an_empty_name_finds_the_emulated_tpu(tmp_path: Path) -> None:
    script = tmp_path / "resolves.py"
    script.write_text(
        "import trainer.compat\n"
        "import tensorflow as tf\n"
        "print(repr(tf.distribute.cluster_resolver.TPUClusterResolver('').master()))\n"
    )
    assert run_script(script, TPUSERVE_EMULATED_TPU="2").stdout == "''\n"


@pytest.mark.parametrize(
    ("uses", "printed"),
    [
        ("tf.compat.v1.estimator.tpu.TPUEstimator", "[]['']"),
        ("tf.distribute.TPUStrategy", "ValueError"),
    ],
)
def test_resolver_without_a_name_is_this_machine_in_programs_for_tpu_estimator(
    tmp_path: Path, uses: str, printed: str
) -> None:
    script = tmp_path / "resolves.py"
    script.write_text(
        "import trainer.compat\n"
        "import tensorflow as tf\n"
        f"{uses}\n"
        "for name in [], ['']:\n"
        "    try:\n"
        "        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(*name)\n"
        "        print(name if resolver.master() == '' else 'remote', end='')\n"
        "    except ValueError:\n"
        "        print('ValueError')\n"
        "        break\n"
    )
    assert run_script(script).stdout.strip() == printed
