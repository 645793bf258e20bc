"""Lists the files in a directory and its subdirectories, also those behind symbolic links."""

import os
from collections.abc import Iterator
from pathlib import Path


def list_files(directory: Path) -> list[Path]:
    """Return the paths of all files in a directory and its subdirectories, sorted.

    Symbolic links to files and directories are followed, except a link to a directory that the link
    itself is in.
    """
    return sorted(_find_files(directory, frozenset()))


def _find_files(directory: Path, parents: frozenset[str]) -> Iterator[Path]:
    """Yield the files in a directory, unless it is one of its own parents, as real paths."""
    real = os.path.realpath(directory)
    if real in parents:
        return
    try:
        paths = list(directory.iterdir())
    except PermissionError:
        return
    for path in paths:
        if path.is_dir():
            yield from _find_files(path, parents | {real})
        elif path.is_file():
            yield path
