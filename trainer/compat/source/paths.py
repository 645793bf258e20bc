"""Distinguishes the files of a user's program from those of libraries, Python and tpuserve."""

import functools
import sysconfig
from pathlib import Path

OUR_PACKAGES = ("trainer", "tpuserve", "server")
OUR_PACKAGE_DIRECTORIES = tuple(Path(__file__).resolve().parents[3] / name for name in OUR_PACKAGES)

_LIBRARY_DIRECTORIES = {"site-packages", "dist-packages"}


def is_library_file(file: Path) -> bool:
    """Return whether a file is part of an installed package, of Python or of tpuserve.

    The executable scripts of installed packages, such as pytest, count as part of a package.
    """
    parents = set(file.parents)
    names = {parent.name for parent in parents}
    return bool(
        _LIBRARY_DIRECTORIES & names
        or parents & {*OUR_PACKAGE_DIRECTORIES, _standard_library()}
        or file.parent.resolve() == _scripts()
    )


@functools.cache
def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


@functools.cache
def _scripts() -> Path:
    """Return the directory of installed packages' executable scripts, such as .venv/bin."""
    return Path(sysconfig.get_path("scripts")).resolve()
