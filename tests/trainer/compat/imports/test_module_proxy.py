import json
from pathlib import Path

import pytest

from tests import processes

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "programs" / "first_version.py"


def test_a_program_of_tensorflow_1_finds_what_it_was_written_with() -> None:
    done = processes.run("run", str(PROGRAM), "--status=7")
    assert done.returncode == 7, done.stderr[-4000:]
    checks = json.loads(done.stdout)
    assert len(checks) == PROGRAM.read_text().count("@check")
    said = [line for line in done.stderr.splitlines() if line.startswith("tpuserve: ")]
    assert len(said) == 1
    assert "first_version.py gets TensorFlow 1's names and behaviour" in said[0]
    assert "--no-tf1" in said[0]
