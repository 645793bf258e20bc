"""What is written to file descriptor 2 while TensorFlow is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def imported(tmp_path: Path, tensorflow: str) -> "subprocess.CompletedProcess[str]":
    """What importing this stand-in for TensorFlow says; the real one says it when it likes."""
    (tmp_path / "tensorflow.py").write_text(tensorflow)
    return subprocess.run(
        [sys.executable, "-c", "from tpuserve import quiet; quiet.import_tensorflow(); print(1)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_noise_is_left_out_and_all_else_is_passed_on(tmp_path: Path) -> None:
    said = "I0000 cudart_stub.cc:31] Could not find cuda drivers\\nE0000 out of memory\\n"
    done = imported(tmp_path, f"import os; os.write(2, b'{said}')")
    assert (done.returncode, done.stderr) == (0, "E0000 out of memory\n")


def test_a_failed_import_raises_its_own_error(tmp_path: Path) -> None:
    done = imported(tmp_path, "raise ImportError('no such library')")
    assert done.returncode == 1
    assert done.stderr.endswith("ImportError: no such library\n")
