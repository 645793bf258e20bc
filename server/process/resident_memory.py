"""Reads the resident memory of this process from the file system /proc."""

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    # The second number in /proc/self/statm is the number of resident pages.
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
