"""Finds the TPU chips on the PCI bus, and the device files through which a process opens them."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LOCK_FILE = Path("/tmp/libtpu_lockfile")
"""The file that libtpu locks while a process uses the TPU."""
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A running process of this machine, such as one that uses the TPU.

    Attributes:
      command: the command line, shortened to 80 characters.
    """

    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


@dataclass(frozen=True)
class OpenFiles:
    """The processes that have certain files open, such as the device files of a TPU.

    Attributes:
      num_hidden: the number of other users' processes whose open files this process is not allowed
        to read. Some of them possibly have the files open too.
    """

    processes: tuple[Process, ...]
    num_hidden: int


def find_processes(files: Iterable[Path]) -> OpenFiles:
    """Return the processes, except this one, that have any of these files open.

    On a system without /proc, the result is empty.
    """
    targets = {str(path) for path in files}
    if not targets or not _PROC.is_dir():
        return OpenFiles((), 0)
    holders, num_hidden = [], 0
    for directory in _PROC.glob("[0-9]*"):
        pid = int(directory.name)
        if pid == os.getpid():
            continue
        command = _read_command(directory)
        try:
            if _list_open_files(directory) & targets:
                holders.append(Process(pid, command))
        except PermissionError:
            # Do not count a kernel thread as hidden: it has no command line, and opens no device
            # files.
            num_hidden += bool(command)
        except OSError:
            # Skip a process that has ended in the meantime.
            continue
    return OpenFiles(tuple(sorted(holders, key=lambda process: process.pid)), num_hidden)


def _list_open_files(directory: Path) -> set[str]:
    files = set()
    for descriptor in os.listdir(directory / "fd"):
        try:
            files.add(os.readlink(directory / "fd" / descriptor))
        except FileNotFoundError:
            # Skip a file that the process has closed in the meantime.
            continue
    return files


def _read_command(directory: Path) -> str:
    try:
        words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join(words).strip()[:80]


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
