"""Modules of a program that have the name of one of our packages.

Programs for AI Platform have theirs in a package `trainer`. Ours are imported already, under
names that Python has once; so the program's are imported under another, which its own import
statements are led to.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from trainer.compat.source.paths import OUR_PACKAGE_DIRECTORIES, OUR_PACKAGES

_PREFIX = "program_"


def resolve_module_name(name: str, directories: Sequence[Path]) -> str:
    """The name under which a program's module is imported: mostly its own.

    Args:
      name: as the program has it: "trainer.model".
      directories: where the program's modules are.
    """
    root, dot, rest = name.partition(".")
    if root not in OUR_PACKAGES:
        return name
    for directory in directories:
        for place in (directory / root, directory / f"{root}.py"):
            if place.exists() and place.resolve() not in OUR_PACKAGE_DIRECTORIES:
                _load(f"{_PREFIX}{root}", place)
                return f"{_PREFIX}{root}{dot}{rest}"
    return name


def _load(name: str, place: Path) -> None:
    if name in sys.modules:
        return
    file = place / "__init__.py" if place.is_dir() else place
    if not file.exists():
        module = ModuleType(name)
        module.__path__ = [str(place)]
        sys.modules[name] = module
        return
    paths = [str(place)] if place.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=paths)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
