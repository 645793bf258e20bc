"""Describes the user's program that this process runs: its main file and its directories."""

import functools
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.compat.source.paths import OUR_PACKAGE_DIRECTORIES, OUR_PACKAGES, is_library_file

_PREFIX = "program_"


def resolve_module_name(name: str, directories: Sequence[Path]) -> str:
    """Return the name under which Python can import a module of a user's program.

    The result is `name` itself, unless the program has a package with the name of a package of
    tpuserve.

    Args:
      name: the name of the module in the program's import statement, such as "trainer.model".
    """
    root, dot, rest = name.partition(".")
    if root not in OUR_PACKAGES:
        return name
    for directory in directories:
        package, module = directory / root, directory / f"{root}.py"
        # Look for a directory or a file with the suffix .py. A file without a suffix is not a
        # module, even if it has the name of the module, such as a script "server".
        for path, exists in ((package, package.is_dir()), (module, module.exists())):
            if exists and path.resolve() not in OUR_PACKAGE_DIRECTORIES:
                _import_from_path(f"{_PREFIX}{root}", path)
                return f"{_PREFIX}{root}{dot}{rest}"
    return name


def _import_from_path(name: str, path: Path) -> None:
    """Import a module from a file or a package's directory under a name of our choice."""
    if name in sys.modules:
        return
    file = path / "__init__.py" if path.is_dir() else path
    if not file.exists():
        # Create a namespace package, as Python does for a directory without __init__.py.
        module = ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module
        return
    search_locations = [str(path)] if path.is_dir() else None
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=search_locations
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


# The values that __name__ may have in a program's main module. "__mp_main__" is the value in the
# processes that Python's module multiprocessing starts.
_MAIN_NAMES = ("__main__", "__mp_main__")


@dataclass(frozen=True)
class UserProgram:
    """Describes a user's program: the source of its main file, and the directories of its modules.

    Attributes:
      source: the contents of the main file; empty in an interactive session, which has no file.
      file: the absolute path of the main file; None in an interactive session.
      spec: the import spec of the main module if the program is run as `python -m` runs a module;
        None if it is run as a script.
    """

    name: str
    source: bytes = b""
    file: Path | None = None
    directories: tuple[Path, ...] = field(default=())
    spec: ModuleSpec | None = None

    def owns_module(self, module_globals: Mapping[str, Any] | None) -> bool:
        """Return whether a module belongs to the program and not to a library."""
        if module_globals is None:
            return False
        if module_globals.get("__name__") in _MAIN_NAMES:
            return True
        file = module_globals.get("__file__")
        return isinstance(file, str) and _is_user_file_below(file, self.directories)

    def compile_source(self) -> CodeType:
        """Compile the main file."""
        code: CodeType = compile(self.source, str(self.file), "exec", dont_inherit=True)
        return code


@functools.lru_cache(maxsize=4096)
def _is_user_file_below(file: str, directories: tuple[Path, ...]) -> bool:
    path = Path(file).resolve()
    return not is_library_file(path) and not {*directories}.isdisjoint(path.parents)


def set_script_directory(directory: Path) -> None:
    """Make a program's directory the first entry of sys.path, as `python SCRIPT` does.

    The entry replaces the directory of the `tpuserve` command.
    """
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(directory)


def program_from_script(script: str) -> UserProgram:
    """Read a script, and return the UserProgram that describes the script and its modules.

    Raises:
      InvalidSetting: the path does not exist, cannot be read, or is not a Python file.
    """
    path = Path(script)
    if path.is_dir():
        raise InvalidSetting(f"{script} is a directory. Give the path of the Python file to run.")
    if not path.exists():
        raise InvalidSetting(f"{script} does not exist. Give the path of a Python file.")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InvalidSetting(
            f"{script} cannot be read: {error.strerror}. Give the path of a readable Python file."
        ) from error
    _check_is_text(script, source)
    # Resolve symbolic links: if the script is a link, Python puts the directory of the link's
    # target on sys.path, and finds the program's modules in that directory.
    directory = path.resolve().parent
    directories = (directory, *_python_path_directories())
    return UserProgram(script, source, Path(os.path.abspath(script)), directories)


def program_from_module(name: str) -> UserProgram:
    """Read a main module, and return the UserProgram that describes it and the modules it imports.

    Like `python -m`, puts the working directory first on sys.path, and finds the module there or
    elsewhere on sys.path.
    """
    directory = Path.cwd()
    set_script_directory(directory)
    try:
        import_name = resolve_module_name(name, [directory])
        spec = importlib.util.find_spec(import_name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{import_name}.__main__")
    except (ModuleNotFoundError, ValueError) as error:
        raise InvalidSetting(
            f"{name} is not a module: {error}. Give the name of a module that can be run."
        ) from error
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise InvalidSetting(
            f"found no Python file of a module {name} from {directory}. Give the name of a module "
            f"that can be run, or the path of a script without -m."
        )
    file = Path(spec.origin)
    source = file.read_bytes()
    _check_is_text(name, source)
    directories = (directory, file.resolve().parent, *_python_path_directories())
    return UserProgram(name, source, file, directories, spec)


def find_running_program(importer: Mapping[str, Any]) -> UserProgram | None:
    """Return the user's program in this process, if the importing module is part of the program.

    Returns:
      The program; None if the importing module belongs to a library, if a tool such as pytest runs
      in this process, or if the importing module was itself imported in an interactive session.
    """
    is_main = importer.get("__name__") in _MAIN_NAMES
    main = importer if is_main else vars(sys.modules["__main__"])
    file = main.get("__file__")
    if not isinstance(file, str) or not os.path.isfile(file):
        return UserProgram("this session", directories=(Path.cwd(),)) if is_main else None
    path = Path(os.path.abspath(file))
    if is_library_file(path):
        return None
    directories = (path.resolve().parent, *_python_path_directories())
    program = UserProgram(path.name, path.read_bytes(), path, directories)
    return program if program.owns_module(importer) else None


def _check_is_text(name: str, source: bytes) -> None:
    try:
        text = importlib.util.decode_source(source)
    except (SyntaxError, UnicodeDecodeError):
        text = "\0"
    if "\0" in text:
        raise InvalidSetting(f"{name} is not a text file. Give the source of a Python program.")


def _python_path_directories() -> tuple[Path, ...]:
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return tuple(Path(entry).resolve() for entry in entries if entry)
