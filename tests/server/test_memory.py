"""Memory of models comes back when they are unloaded."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_a_model_that_comes_and_goes_leaves_no_memory_behind() -> None:
    command = [sys.executable, "-m", "benchmarks.serve.memory", "--megabytes=80", "--cycles=3"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    sizes = [float(line.split()[2]) for line in said.splitlines() if line.startswith("cycle")]
    assert len(sizes) == 3
    # All of the others' memory would be twice as much as one model's.
    assert sizes[-1] - sizes[0] < 40
