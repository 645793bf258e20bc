import json
from pathlib import Path

import pytest

from tests import processes

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "programs" / "first_version.py"


def test_tensorflow_1_program_finds_the_names_of_tensorflow_1() -> None:
    process = processes.run_tpuserve("run", str(PROGRAM), "--status=7")
    assert process.returncode == 7, process.stderr[-4000:]
    checks = json.loads(process.stdout)
    assert len(checks) == PROGRAM.read_text().count("@check")
    messages = [line for line in process.stderr.splitlines() if line.startswith("tpuserve: ")]
    assert len(messages) == 1
    assert "first_version.py gets TensorFlow 1's names and behaviour" in messages[0]
    assert "--no-tf1" in messages[0]
