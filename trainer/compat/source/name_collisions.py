"""Imports packages of a user's program that have the name of a package of tpuserve.

Programs written for Google's AI Platform keep their modules in a package called `trainer`.
tpuserve's package `trainer` is imported already, and Python allows one module for each name.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from trainer.compat.source.paths import OUR_PACKAGE_DIRECTORIES, OUR_PACKAGES

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
