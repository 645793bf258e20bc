"""Imports program modules whose package has the name of one of tpuserve's packages.

Programs written for Google's AI Platform keep their modules in a package called `trainer`.
tpuserve's package `trainer` is imported already, and Python allows one module for each name. The
program's package is therefore imported as `program_trainer`, and the program's import statements
are redirected there.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from trainer.compat.source.paths import OUR_PACKAGE_DIRECTORIES, OUR_PACKAGES

_PREFIX = "program_"


def resolve_module_name(name: str, directories: Sequence[Path]) -> str:
    """Return the name under which a program's module is imported.

    This is the module's own name unless the module's package has the name of one of tpuserve's
    packages. Such a package is imported by this function.

    Args:
      name: the module name in the program's import statement: "trainer.model".
      directories: the directories that hold the program's modules.
    """
    root, dot, rest = name.partition(".")
    if root not in OUR_PACKAGES:
        return name
    for directory in directories:
        package, module = directory / root, directory / f"{root}.py"
        # Look for files with the suffix .py: a script without a suffix, such as "server", is not a
        # module.
        for path, exists in ((package, package.is_dir()), (module, module.exists())):
            if exists and path.resolve() not in OUR_PACKAGE_DIRECTORIES:
                _import_from_path(f"{_PREFIX}{root}", path)
                return f"{_PREFIX}{root}{dot}{rest}"
    return name


def _import_from_path(name: str, path: Path) -> None:
    """Import a module from a file or a package directory, unless that name is imported already."""
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
