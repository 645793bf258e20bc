"""Refusal of symbolic links that lead out of a model's base path."""

import os
from pathlib import Path

from tpuserve.errors import UnsafePath


def check_no_escaping_symlinks(directory: Path, base_path: Path | None = None) -> None:
    """Check that every file of a version lies inside the model's base path.

    Args:
      directory: the version's directory.
      base_path: the base path, which may be a link itself; None for the directory's parent.

    Raises:
      UnsafePath: the directory, or a file or directory below it, is a link that leads outside.
    """
    base = os.path.realpath(directory.parent if base_path is None else base_path)
    _check_path(str(directory), base)
    for parent, directories, names in os.walk(directory):
        for name in (*directories, *names):
            _check_path(os.path.join(parent, name), base)


def _check_path(path: str, base: str) -> None:
    real = os.path.realpath(path)
    if os.path.commonpath([real, base]) != base:
        raise UnsafePath(
            f"{path} leads to {real}, which is outside of the base path {base}. Put the files "
            f"inside the base path, or serve with --allow_links if you trust the link."
        )
