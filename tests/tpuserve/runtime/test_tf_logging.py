"""The log of the import of TensorFlow is filtered, and errors are raised unchanged."""

import os
import subprocess
import sys
from pathlib import Path


def import_fake_tensorflow(tmp_path: Path, tensorflow: str) -> "subprocess.CompletedProcess[str]":
    """Import a fake module `tensorflow` with this source in a new process; return the process."""
    (tmp_path / "tensorflow.py").write_text(tensorflow)
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from tpuserve.runtime import tf_logging as t; t.import_tensorflow(); print(1)",
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_noise_is_dropped_and_other_lines_are_kept(tmp_path: Path) -> None:
    log = "I0000 cudart_stub.cc:31] Could not find cuda drivers\\nE0000 out of memory\\n"
    result = import_fake_tensorflow(tmp_path, f"import os; os.write(2, b'{log}')")
    assert (result.returncode, result.stderr) == (0, "E0000 out of memory\n")


def test_a_failed_import_raises_its_own_error(tmp_path: Path) -> None:
    result = import_fake_tensorflow(tmp_path, "raise ImportError('no such library')")
    assert result.returncode == 1
    assert result.stderr.endswith("ImportError: no such library\n")
