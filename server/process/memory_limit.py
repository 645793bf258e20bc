"""Finds out how much memory this process may use."""

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    # The second number in /proc/self/statm is the number of resident pages.
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_CGROUPS = Path("/sys/fs/cgroup")
_CGROUP_OF_PROCESS = Path("/proc/self/cgroup")


def usable_memory_bytes(
    cgroups: Path = _CGROUPS, cgroup_of_process: Path = _CGROUP_OF_PROCESS
) -> int:
    """Return the bytes of memory that this process may use.

    This is the memory of the machine, or the limit of the process's control group if the limit is
    less.

    Containers set such limits.
    """
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine_bytes, *_read_cgroup_limits(cgroups, cgroup_of_process)])


def _read_cgroup_limits(cgroups: Path, cgroup_of_process: Path) -> list[int]:
    try:
        lines = cgroup_of_process.read_text().splitlines()
    except OSError:
        return []
    files: list[Path] = []
    for line in lines:
        # Each line of the file names a control group of the process: "0::/path" for version 2,
        # "4:memory:/path" for version 1. The limits of all parent groups apply too.
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        files += [
            directory / name
            for directory in (group, *group.parents)
            if root in (directory, *directory.parents)
        ]
    return [limit for limit in map(_read_limit, files) if limit is not None]


def _read_limit(path: Path) -> int | None:
    try:
        # If there is no limit, the file of a control group of version 2 contains "max" and not a
        # number.
        return int(path.read_text())
    except (OSError, ValueError):
        return None
