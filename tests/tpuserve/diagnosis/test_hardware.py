from pathlib import Path

from tests.tpuserve.diagnosis import machines
from tpuserve.diagnosis.hardware import check_hardware, check_users
from tpuserve.diagnosis.request import Finding, Status, read_request
from tpuserve.tpu_hardware.chips import OpenFiles, Process, find_tpu_hardware


def list_findings(root: Path, **environ: str) -> list[Finding]:
    hardware = find_tpu_hardware(root)
    return list(check_hardware(hardware, read_request(environ, hardware.is_present)))


def test_the_generation_the_chips_and_their_files_are_named(tmp_path: Path) -> None:
    (finding,) = list_findings(machines.v5e_of_four_chips(tmp_path))
    assert finding.status is Status.OK
    assert finding.message.startswith(f"TPU v5e, 4 chips, {tmp_path}/dev/vfio/0 ")


def test_a_machine_without_a_tpu_is_no_problem_and_has_three_things_to_try(tmp_path: Path) -> None:
    (finding,) = list_findings(tmp_path)
    assert finding.status is Status.NOTE
    assert finding.message.startswith("no TPU: ")
    assert len(finding.advice) == 3


def test_pjrt_on_a_tpu_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    (finding,) = list_findings(tmp_path, TPUSERVE_TPU_RUNTIME="pjrt")
    assert finding.status is Status.PROBLEM
    assert finding.advice == ("Set TPUSERVE_PJRT_PLATFORM=cpu to run on the CPU, or use a TPU VM",)


def test_chips_without_device_files_are_a_problem(tmp_path: Path) -> None:
    machines.add_pci_device(tmp_path, 4, "0x006f")
    (finding,) = list_findings(tmp_path)
    assert finding.status is Status.PROBLEM
    assert finding.message.startswith("TPU v6e, 1 chip, and no device file")


def test_device_files_without_chips_may_belong_to_other_devices(tmp_path: Path) -> None:
    machines.add_file(tmp_path, "dev/vfio/12")
    (finding,) = list_findings(tmp_path)
    assert finding.status is Status.NOTE
    assert "no TPU chip on the PCI bus" in finding.message


def test_missing_huge_pages_are_a_note(tmp_path: Path) -> None:
    machines.v5e_of_four_chips(tmp_path)
    setting = tmp_path / "sys/kernel/mm/transparent_hugepage/enabled"
    setting.write_text("always [madvise] never\n")
    assert [finding.status for finding in list_findings(tmp_path)] == [Status.OK, Status.NOTE]


def test_the_processes_that_use_the_tpu_are_a_problem_that_names_them() -> None:
    users = OpenFiles((Process(41, "python train.py"), Process(42, "python serve.py")), 0)
    (finding,) = check_users(users)
    assert finding.status is Status.PROBLEM
    assert finding.message.endswith("use the TPU: 41 (python train.py), 42 (python serve.py)")
    assert finding.advice[0].endswith("kill 41 42")


def test_processes_that_cannot_be_examined_are_a_note() -> None:
    assert [finding.status for finding in check_users(OpenFiles((), 7))] == [Status.NOTE]
    assert [finding.status for finding in check_users(OpenFiles((), 0))] == [Status.OK]
