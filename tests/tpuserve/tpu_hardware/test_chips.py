from pathlib import Path

import pytest

from tests.tpuserve.diagnosis import machines
from tpuserve.tpu_hardware.chips import find_tpu_hardware


def test_chips_are_counted_and_other_devices_of_google_are_not(tmp_path: Path) -> None:
    hardware = find_tpu_hardware(machines.v5e_of_four_chips(tmp_path))
    assert (hardware.generation, hardware.num_chips) == ("v5e", 4)
    assert [path.name for path in hardware.device_files] == ["0", "1", "2", "3"]
    assert hardware.huge_pages


@pytest.mark.parametrize(
    ("device", "generation"), [("0x005e", "v4"), ("0x0062", "v5p"), ("0x006f", "v6e")]
)
def test_the_pci_device_id_names_the_generation(
    tmp_path: Path, device: str, generation: str
) -> None:
    machines.add_pci_device(tmp_path, 4, device)
    assert find_tpu_hardware(tmp_path).generation == generation


def test_a_device_of_another_vendor_is_no_tpu(tmp_path: Path) -> None:
    machines.add_pci_device(tmp_path, 4, "0x0063", vendor="0x10de")
    assert not find_tpu_hardware(tmp_path).is_present


def test_a_machine_without_files_has_no_tpu(tmp_path: Path) -> None:
    hardware = find_tpu_hardware(tmp_path)
    assert not hardware.is_present
    assert not hardware.huge_pages
