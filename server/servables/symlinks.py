"""Links that lead out of where a model's files are to be."""

import os
from pathlib import Path

from tpuserve.errors import UnsafePath


def check(directory: Path) -> None:
    """Refuses a version with a file that in truth lies outside of the model's base path.

    Args:
      directory: of the version; its parent is the base path, which may be a link itself.

    Raises:
      UnsafePath: the directory, or a file or directory below it, is a link out.
    """
    base = os.path.realpath(directory.parent)
    _check(str(directory), base)
    for place, directories, names in os.walk(directory):
        for name in (*directories, *names):
            _check(os.path.join(place, name), base)


def _check(path: str, base: str) -> None:
    real = os.path.realpath(path)
    if os.path.commonpath([real, base]) != base:
        raise UnsafePath(
            f"{path} leads to {real}, which is outside of the base path {base}. Put the files "
            f"there, or serve with --allow_links if you trust the link."
        )
