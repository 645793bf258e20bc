import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpuserve.tpu_hardware.chips import find_processes

HOLD_OPEN = "import sys; held = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_process_that_holds_a_file_open_is_found_until_it_ends(tmp_path: Path) -> None:
    device = tmp_path / "accel0"
    device.touch()
    command = [sys.executable, "-c", HOLD_OPEN, str(device)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        (process,) = find_processes([device, tmp_path / "accel1"]).processes
    assert process.pid == holder.pid
    assert process.command.startswith(sys.executable)
    assert find_processes([device]).processes == ()


def test_this_process_is_not_listed(tmp_path: Path) -> None:
    with open(tmp_path / "accel0", "w"):
        holders = find_processes([tmp_path / "accel0"]).processes
    assert os.getpid() not in [process.pid for process in holders]


def test_no_file_has_no_process() -> None:
    assert find_processes([]).processes == ()
