"""What a directory looks like from outside, to see that it has changed."""

import os
from pathlib import Path
from typing import TypeAlias

Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]


def of(directory: Path) -> Fingerprint:
    """Name, size and time of each file below a directory; nothing where there is none."""
    found = []
    for place, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            try:
                status = os.stat(path)
            except OSError:
                # Gone since it was listed, or a link to nowhere.
                found.append((path, -1, -1))
            else:
                found.append((path, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))
