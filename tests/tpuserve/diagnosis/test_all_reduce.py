from pathlib import Path

import pytest

from tpuserve.diagnosis.all_reduce import AllReduce, run_all_reduce
from tpuserve.diagnosis.doctor import check_all_reduce
from tpuserve.diagnosis.request import Finding, Status
from tpuserve.tpu_hardware.chips import TpuHardware

FOUR_CHIPS = TpuHardware("v5e", 4, (Path("/dev/vfio/0"),), huge_pages=True)
FOUR_DEVICES = ("TPU v5 lite",) * 4


def list_findings(result: AllReduce) -> list[Finding]:
    return list(check_all_reduce(result, FOUR_CHIPS))


@pytest.mark.slow
def test_each_of_four_cpu_devices_gets_the_sum_of_one_to_four(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    result = run_all_reduce("cpu", timeout_s=300)
    assert result.error == ""
    assert result.sums == (10, 10, 10, 10)
    assert result.is_correct
    assert [finding.status for finding in list_findings(result)] == [Status.OK]


@pytest.mark.slow
def test_a_library_that_cannot_start_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--no_such_flag")
    result = run_all_reduce("cpu", timeout_s=300)
    assert result.error
    assert "\n" not in result.error
    assert [finding.status for finding in list_findings(result)] == [Status.PROBLEM]


def test_the_process_ends_at_the_time_limit() -> None:
    result = run_all_reduce("cpu", timeout_s=0.01)
    assert result.error == "no result within 0.01 s"


def test_a_wrong_sum_is_a_problem() -> None:
    (finding,) = list_findings(AllReduce("tpu", FOUR_DEVICES, "libtpu", sums=(10, 10, 10, 9)))
    assert finding.status is Status.PROBLEM
    assert "sum to 10, 10, 10, 9, not to 10" in finding.message


def test_fewer_devices_than_chips_are_a_note() -> None:
    ok, note = list_findings(AllReduce("tpu", FOUR_DEVICES[:2], "libtpu", 2**34, (3, 3)))
    assert "2 devices of the platform tpu (TPU v5 lite), 16.0 GiB each; libtpu" in ok.message
    assert note.status is Status.NOTE
    assert note.message == "jax uses 2 of 4 chips"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("ABORTED: The TPU is already in use by process with pid 7", "Stop the process"),
        ("no result within 180 s", "If the TPU has several hosts, create a TPU with a single host"),
        ("exit status -11: no output", "Run the command with TPU_STDERR_LOG_LEVEL=0"),
    ],
)
def test_each_failure_of_a_tpu_says_what_to_do(error: str, advice: str) -> None:
    (finding,) = list_findings(AllReduce("tpu", error=error))
    assert finding.status is Status.PROBLEM
    assert finding.advice[0].startswith(advice)
