import subprocess
import sys

import pytest

from tpuserve.compilation.worker import split_estimate


@pytest.mark.parametrize(
    ("estimate", "seconds", "untimed"),
    [(0.25, 0.25, 0), (-0.75, 0.25, 1), (-1.5, 0.5, 2), (0.0, 0, 0)],
)
def test_an_operation_without_a_time_counts_as_minus_one_second(
    estimate: float, seconds: float, untimed: int
) -> None:
    assert split_estimate(estimate) == (seconds, untimed)


@pytest.mark.slow
def test_a_worker_imports_no_tensorflow_and_prints_nothing() -> None:
    program = (
        "import sys; from tpuserve.compilation import worker; "
        "print(worker.describe_topology('v5e:1x1')); "
        "assert 'tensorflow' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "devices_per_chip=1" in result.stdout
    assert result.stderr == ""
