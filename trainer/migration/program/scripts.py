"""Which programs a path stands for."""

import os
import re
from pathlib import Path

from tpuserve.errors import InvalidSetting
from trainer.migration.program import sources

_MAIN = re.compile(r"^if __name__ == ['\"]__main__['\"]|^(?:tf\.)?app\.run\(", re.MULTILINE)
_SKIPPED = {"__pycache__", "build", "dist", "node_modules", "site-packages"}


def at(path: Path) -> list[Path]:
    """The scripts at a path: a file is one; in a directory, those that are run by themselves.

    Of the Python files in and below a directory these are the files with a main part, and those
    that none of these imports.

    Raises:
      InvalidSetting: a directory without Python files.
    """
    if not path.is_dir():
        return [path]
    files = [
        Path(directory) / name
        for directory, inside, names in os.walk(path)
        if _keep(inside)
        for name in sorted(names)
        if name.endswith(".py")
    ]
    if not files:
        raise InvalidSetting(f"{path} has no Python files. Give a script, or where scripts are.")
    mains = [each for each in files if _MAIN.search(each.read_text(errors="replace"))]
    read = {
        source.path.resolve() for main in mains for source in sources.program(main, (main.parent,))
    }
    rest = [each for each in files if each.resolve() not in read and each.name != "__init__.py"]
    return sorted([*mains, *rest])


def _keep(inside: list[str]) -> bool:
    inside[:] = sorted(each for each in inside if each not in _SKIPPED and not each.startswith("."))
    return True
