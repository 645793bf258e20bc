"""The findings of `tpuserve doctor` about imitated machines."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tpuserve.diagnosis import machines
from tpuserve.diagnosis.doctor import Diagnosis, diagnose
from tpuserve.diagnosis.request import Status
from tpuserve.tpu_hardware import chips

HOLD_OPEN = "import sys; held = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


def examine(root: Path, **environ: str) -> Diagnosis:
    return diagnose(environ, find_hardware=lambda: chips.find_tpu_hardware(root))


def problems(diagnosis: Diagnosis) -> list[str]:
    """Return the checks that found a problem."""
    findings = [finding for finding in diagnosis.findings if finding.status is Status.PROBLEM]
    return [finding.check for finding in findings]


def test_a_machine_without_a_tpu_passes_without_an_all_reduce(tmp_path: Path) -> None:
    diagnosis = examine(tmp_path)
    assert diagnosis.passed
    assert diagnosis.all_reduce is None


def test_an_invalid_variable_is_one_problem(tmp_path: Path) -> None:
    diagnosis = examine(tmp_path, TPUSERVE_TPU_RUNTIME="xla")
    assert problems(diagnosis) == ["environment"]
    (problem,) = [finding for finding in diagnosis.findings if finding.status is Status.PROBLEM]
    assert problem.message == "TPUSERVE_TPU_RUNTIME is 'xla'"
    assert problem.advice[0].startswith("Set it to pjrt, tensorflow or emulated")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_chip_in_use_is_a_problem_and_the_all_reduce_is_not_tried(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    machines.v5e_of_four_chips(tmp_path)
    command = [sys.executable, "-c", HOLD_OPEN, str(tmp_path / "dev/vfio/2")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        diagnosis = examine(tmp_path)
    assert "in use" in problems(diagnosis)
    assert [process.pid for process in diagnosis.users.processes] == [holder.pid]
    assert diagnosis.all_reduce is None
    assert diagnosis.findings[-1].message == "not run: the TPU is in use"


@pytest.mark.slow
def test_a_tpu_that_jax_cannot_start_is_a_problem(tmp_path: Path) -> None:
    pytest.importorskip("libtpu")
    diagnosis = examine(machines.v5e_of_four_chips(tmp_path))
    assert problems(diagnosis) == ["all-reduce"]
    assert diagnosis.all_reduce is not None
    assert "jax finds no device of the platform 'tpu'" in diagnosis.all_reduce.error
