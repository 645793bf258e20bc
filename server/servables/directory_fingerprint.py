"""Fingerprints of directories, for detecting that a version's files have changed."""

import os
from pathlib import Path
from typing import TypeAlias

Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]


def directory_fingerprint(directory: Path) -> Fingerprint:
    """Return path, size and modification time of each file below a directory.

    A directory that does not exist has an empty fingerprint.

    Returns:
      Sorted (path, size in bytes, modification time in nanoseconds) of each file.
    """
    entries = []
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            try:
                status = os.stat(path)
            except OSError:
                # Do not fail on a broken link, or on a file that was removed after it was listed.
                entries.append((path, -1, -1))
            else:
                entries.append((path, status.st_size, status.st_mtime_ns))
    return tuple(sorted(entries))
