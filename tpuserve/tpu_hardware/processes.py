"""Finds the processes that hold files open, such as the device files of a TPU."""

import os
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
