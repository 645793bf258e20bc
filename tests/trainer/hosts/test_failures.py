import os
import signal
import subprocess
from pathlib import Path

import pytest
import tensorflow as tf

from tests.trainer.hosts import host_processes

pytestmark = pytest.mark.slow

# The time in seconds within which the other processes end after the loss of a process.
LOSS_SECS = 60


def newest_step(model_dir: Path) -> int:
    newest = tf.train.latest_checkpoint(str(model_dir))
    return int(newest.rpartition("-")[2])


def error_of(process: "subprocess.Popen[str]") -> str:
    """Wait until a process ends with status 1; return the line of its error."""
    _, errors = process.communicate(timeout=LOSS_SECS)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "stack trace" not in errors
    (line,) = (line for line in errors.splitlines() if line.startswith("Error: "))
    return line


def test_lost_hosts_are_named_and_the_next_start_resumes_from_the_last_checkpoint(
    tmp_path: Path,
) -> None:
    pytest.importorskip("jax")
    step = 0
    for lost, other in ((1, 0), (0, 1)):
        with host_processes.hosts(2, 1, "endless", tmp_path) as processes:
            # The first loop continues from the checkpoint.
            assert host_processes.wait_for_steps(processes[other], 1) == step + 5
            host_processes.wait_for_steps(processes[other], 2)
            processes[lost].send_signal(signal.SIGKILL)
            error = error_of(processes[other])
        assert error.startswith(f"Error: host {lost} (127.0.0.1")
        assert "its process has ended. This process, on host" in error
        assert newest_step(tmp_path) >= step + 10
        step = newest_step(tmp_path)
    # A SIGTERM to one host stops both after the same loop, and host 0 saves a checkpoint.
    with host_processes.hosts(2, 1, "endless", tmp_path) as processes:
        assert host_processes.wait_for_steps(processes[0], 1) == step + 5
        os.kill(processes[1].pid, signal.SIGTERM)
        outputs = [process.communicate(timeout=host_processes.LIMIT_SECS) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], outputs
    last_steps = [host_processes.read_report(output).get("step") for output, _ in outputs]
    assert last_steps[1] == newest_step(tmp_path)
