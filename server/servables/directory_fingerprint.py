"""Computes fingerprints of directories, which show whether a version's files have changed."""

import os
from pathlib import Path
from typing import TypeAlias

Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]


def directory_fingerprint(directory: Path) -> Fingerprint:
    """Return the fingerprint of a directory: path, size and modification time of each file in it.

    A directory that does not exist has an empty fingerprint.

    Returns:
      A sorted tuple of (path, size in bytes, modification time in nanoseconds), one per file. Size
      and time are -1 if the system has no status of the file, for example for a broken link.
    """
    entries = []
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            try:
                status = os.stat(path)
            except OSError:
                # The file is a broken link, or was removed after it was listed.
                entries.append((path, -1, -1))
            else:
                entries.append((path, status.st_size, status.st_mtime_ns))
    return tuple(sorted(entries))
