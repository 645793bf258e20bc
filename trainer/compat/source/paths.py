"""Which files are installed packages', Python's or ours, and not a program's."""

import functools
import sysconfig
from pathlib import Path

OUR_PACKAGES = ("trainer", "tpuserve", "server")
OUR_PACKAGE_DIRECTORIES = tuple(Path(__file__).resolve().parents[3] / each for each in OUR_PACKAGES)

_LIBRARIES = {"site-packages", "dist-packages"}


def is_library_file(file: Path) -> bool:
    """Whether a file, given by its resolved path, is no user's."""
    parents = set(file.parents)
    names = {each.name for each in parents}
    return bool(_LIBRARIES & names or parents & {*OUR_PACKAGE_DIRECTORIES, _standard_library()})


@functools.cache
def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()
