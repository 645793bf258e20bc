"""The program that is run: its script or module, and which of the loaded modules are its own."""

import functools
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.compat.source import name_collisions
from trainer.compat.source.paths import is_library_file

# The second is the main module's in processes that multiprocessing starts.
_MAIN_NAMES = ("__main__", "__mp_main__")


@dataclass(frozen=True)
class Program:
    """A program, read but not run.

    Attributes:
      name: of the script or the module, as it was asked for.
      source: of its main file; empty where there is none, as in an interactive session.
      file: that file, absolute; None where there is none.
      directories: where its modules are, and below.
      spec: of the main module, where it is run as one.
    """

    name: str
    source: bytes = b""
    file: Path | None = None
    directories: tuple[Path, ...] = field(default=())
    spec: ModuleSpec | None = None

    def has(self, module: Mapping[str, Any] | None) -> bool:
        """Whether a module, given by its globals, is the program's, not a library's."""
        if module is None:
            return False
        if module.get("__name__") in _MAIN_NAMES:
            return True
        file = module.get("__file__")
        return isinstance(file, str) and self._has_file(file)

    def compiled(self) -> CodeType:
        """The code of its main file.

        Raises:
          SyntaxError: it is no Python, with the place.
        """
        code: CodeType = compile(self.source, str(self.file), "exec", dont_inherit=True)
        return code

    def _has_file(self, file: str) -> bool:
        return _is_below(file, self.directories)


@functools.lru_cache(maxsize=4096)
def _is_below(file: str, directories: tuple[Path, ...]) -> bool:
    path = Path(file).resolve()
    return not is_library_file(path) and not {*directories}.isdisjoint(path.parents)


def set_script_directory(directory: Path) -> None:
    """Has modules be looked for in a program's own directory first, as Python has it.

    It takes the place of the directory of the command that runs the program.
    """
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(directory)


def program_from_script(script: str) -> Program:
    """The program of a script.

    Raises:
      InvalidSetting: it is not there, or is no Python file.
    """
    path = Path(script)
    if path.is_dir():
        raise InvalidSetting(f"{script} is a directory. Give the Python file in it that is to run.")
    if not path.exists():
        raise InvalidSetting(f"{script} is not there. Give the path of a Python file.")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InvalidSetting(
            f"{script} cannot be read: {error.strerror}. Give a Python file that can."
        ) from error
    _check_text(script, source)
    # The directory is where a link leads to, as Python has it.
    directory = path.resolve().parent
    return Program(script, source, Path(os.path.abspath(script)), (directory, *_python_path()))


def program_from_module(name: str) -> Program:
    """The program of a module, found as `python -m` finds it: in the working directory first.

    Raises:
      InvalidSetting: there is no such module, or none with a source.
    """
    directory = Path.cwd()
    set_script_directory(directory)
    try:
        found = name_collisions.resolve_module_name(name, [directory])
        spec = importlib.util.find_spec(found)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{found}.__main__")
    except (ModuleNotFoundError, ValueError) as error:
        raise InvalidSetting(f"{name} is no module: {error}. Give one that can be run.") from error
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise InvalidSetting(
            f"{name} is no module with a Python file, seen from {directory}. Give one that can be "
            f"run, or the path of a script without -m."
        )
    file = Path(spec.origin)
    source = file.read_bytes()
    _check_text(name, source)
    return Program(name, source, file, (directory, file.resolve().parent, *_python_path()), spec)


def find_running_program(importer: Mapping[str, Any]) -> Program | None:
    """The program that this process runs already, if a module of it imports something.

    Args:
      importer: globals of the module that imports.
    """
    is_main = importer.get("__name__") in _MAIN_NAMES
    main = importer if is_main else vars(sys.modules["__main__"])
    file = main.get("__file__")
    if not isinstance(file, str) or not os.path.isfile(file):
        return Program("this session", directories=(Path.cwd(),)) if is_main else None
    path = Path(os.path.abspath(file))
    if is_library_file(path):
        # A tool such as pytest, which imports programs.
        return None
    directories = (path.resolve().parent, *_python_path())
    program = Program(path.name, path.read_bytes(), path, directories)
    return program if program.has(importer) else None


def _check_text(name: str, source: bytes) -> None:
    try:
        text = importlib.util.decode_source(source)
    except (SyntaxError, UnicodeDecodeError):
        text = "\0"
    if "\0" in text:
        raise InvalidSetting(f"{name} is not a text file. Give the source of a Python program.")


def _python_path() -> tuple[Path, ...]:
    """The directories that a user has added to Python's path: programs have modules there."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return tuple(Path(each).resolve() for each in given if each)
