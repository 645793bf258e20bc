"""Finds the TPU chips on the PCI bus, and the device files through which a process opens them."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_GOOGLE = "0x1ae0"
# PCI device ID of a TPU chip → its generation, as in jax/_src/hardware_utils.py. Other device IDs
# of Google are network cards and disks.
_GENERATIONS = {
    "0x0027": "v2 or v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "tpu7x",
}
# The patterns of the device files of TPU chips: /dev/accel0 is a chip of v4 or an older generation,
# /dev/vfio/0 is a chip of v5e or a newer one.
_DEVICE_FILES = ("dev/accel[0-9]*", "dev/vfio/[0-9]*")
_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"


@dataclass(frozen=True)
class TpuHardware:
    """The TPU chips that are attached to this machine.

    Attributes:
      generation: the TPU generation, such as "v5e"; empty if the PCI bus has no TPU.
      device_files: the device files of TPU chips, such as /dev/vfio/0.
    """

    generation: str
    num_chips: int
    device_files: tuple[Path, ...]
    huge_pages: bool

    @property
    def is_present(self) -> bool:
        """Whether the machine seems to have a TPU: a chip on the PCI bus or a device file."""
        return bool(self.num_chips or self.device_files)


def find_tpu_hardware(root: Path = Path("/")) -> TpuHardware:
    """Return the TPU chips of this machine.

    Args:
      root: the directory that holds dev/ and sys/; tests pass another directory than "/".
    """
    chips: Counter[str] = Counter()
    for vendor in root.glob("sys/bus/pci/devices/*/vendor"):
        device_id = _read_text(vendor.with_name("device"))
        if _read_text(vendor) == _GOOGLE and device_id in _GENERATIONS:
            chips[_GENERATIONS[device_id]] += 1
    ((generation, num_chips),) = chips.most_common(1) or [("", 0)]
    huge_pages = _read_text(root / _HUGE_PAGES).startswith("[always]")
    return TpuHardware(generation, num_chips, find_device_files(root), huge_pages)


def find_device_files(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the device files of TPU chips, sorted.

    Args:
      root: the directory that holds dev/; tests pass another directory than "/".
    """
    return tuple(sorted(path for pattern in _DEVICE_FILES for path in root.glob(pattern)))


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
