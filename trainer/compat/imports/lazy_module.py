"""A module made of a table: its names are fetched from where they live when they are first used."""

import difflib
import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """A module whose names live elsewhere.

    Attributes:
      shown: what programs call it: "tf.estimator".
    """

    def __init__(
        self, name: str, shown: str, homes: Mapping[str, str], gone: Mapping[str, str]
    ) -> None:
        """Makes it, and registers it as a module that can be imported.

        Args:
          name: under which it is imported.
          shown: what errors call it.
          homes: name → "module:attribute"; "module:" is the module itself.
          gone: name → a sentence that says what replaces it.
        """
        super().__init__(name, f"{shown}, supplied by tpuserve.")
        self.shown = shown
        self._homes, self._gone = dict(homes), gone
        # With a path it is a package, so that its parts can be imported.
        self.__path__: list[str] = []
        self.__all__ = sorted(homes)
        sys.modules[name] = self

    def add(self, name: str, part: ModuleType) -> None:
        """Puts a module inside."""
        setattr(self, name, part)
        self.__all__ = sorted({*self.__all__, name})

    def __getattr__(self, name: str) -> Any:
        home = self._homes.get(name)
        if home is None:
            raise AttributeError(self._missing(name))
        module_name, _, attribute = home.partition(":")
        found: Any = importlib.import_module(module_name)
        if attribute:
            found = getattr(found, attribute)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return list(self.__all__)

    def _missing(self, name: str) -> str:
        if name in self._gone:
            return f"{self.shown}.{name} is not supplied. {self._gone[name]}"
        near = difflib.get_close_matches(name, self.__all__, n=3)
        asked = f"module {self.shown!r} has no attribute {name!r}"
        return f"{asked}. Did you mean {' or '.join(near)}?" if near else f"{asked}."


def register_lazy_modules(
    name: str, shown: str, namespaces: Mapping[str, Mapping[str, str]], gone: Mapping[str, str]
) -> LazyModule:
    """A namespace with others inside; all of them can be imported.

    Args:
      name, shown: of the root.
      namespaces: dotted path below the root, "" for itself, → its names; parents come first.
      gone: dotted path of a name below the root → what replaces it.
    """
    made: dict[str, LazyModule] = {}
    for path, homes in namespaces.items():
        below = f"{path}." if path else ""
        inside = {
            each[len(below) :]: text
            for each, text in gone.items()
            if each.startswith(below) and "." not in each[len(below) :]
        }
        suffix = f".{path}" if path else ""
        made[path] = LazyModule(f"{name}{suffix}", f"{shown}{suffix}", homes, inside)
        if path:
            parent, _, last = path.rpartition(".")
            made[parent].add(last, made[path])
    return made[""]
