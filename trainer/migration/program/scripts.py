"""Finds the scripts, which are the main files of programs, in a directory."""

import os
import re
from pathlib import Path

from tpuserve.errors import InvalidSetting
from trainer.migration.program import sources

_MAIN_PART = re.compile(r"^if __name__ == ['\"]__main__['\"]|^(?:tf\.)?app\.run\(", re.MULTILINE)
_SKIPPED_DIRECTORIES = {"__pycache__", "build", "dist", "node_modules", "site-packages"}


def find_scripts(path: Path) -> list[Path]:
    """Find the scripts, which are the main files of programs, in a directory tree.

    A script is a Python file that has an `if __name__ == "__main__"` statement or calls app.run.
    """
    if not path.is_dir():
        return [path]
    files = [
        Path(directory) / name
        for directory, subdirectories, names in os.walk(path)
        if _prune(subdirectories)
        for name in sorted(names)
        if name.endswith(".py")
    ]
    if not files:
        raise InvalidSetting(
            f"{path} has no Python files. Give a script, or a directory with scripts."
        )
    scripts = [file for file in files if _MAIN_PART.search(file.read_text(errors="replace"))]
    read = {
        source.path.resolve()
        for script in scripts
        for source in sources.read_program(script, (script.parent,))
    }
    rest = [file for file in files if file.resolve() not in read and file.name != "__init__.py"]
    return sorted([*scripts, *rest])


def _prune(subdirectories: list[str]) -> bool:
    """Remove directories such as `build` from the list of directories that os.walk enters next."""
    subdirectories[:] = sorted(
        name
        for name in subdirectories
        if name not in _SKIPPED_DIRECTORIES and not name.startswith(".")
    )
    return True
