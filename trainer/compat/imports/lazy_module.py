"""LazyModule, a module whose names are imported from other modules when they are first used."""

import difflib
import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """A module whose names are defined in other modules, and are imported when they are first used.

    Attributes:
      display_name: the name by which programs refer to the module, such as "tf.estimator".

    Args:
      targets: name → import target. The target "module:attribute" is an attribute of a module,
        as in a Python entry point. The target "module:" is a module itself.
      unsupported: name that the module does not have → a sentence for the error message, which
        says what replaces the name.
    """

    def __init__(
        self,
        name: str,
        display_name: str,
        targets: Mapping[str, str],
        unsupported: Mapping[str, str],
    ) -> None:
        super().__init__(name, f"{display_name}, supplied by tpuserve.")
        self.display_name = display_name
        self._targets, self._unsupported = dict(targets), unsupported
        # Set a __path__, because Python imports submodules only from modules that have one.
        self.__path__: list[str] = []
        self.__all__ = sorted(targets)
        sys.modules[name] = self

    def add_submodule(self, name: str, submodule: ModuleType) -> None:
        """Add a submodule, so that programs can use it as an attribute of this module."""
        setattr(self, name, submodule)
        self.__all__ = sorted({*self.__all__, name})

    def __getattr__(self, name: str) -> Any:
        target = self._targets.get(name)
        if target is None:
            raise AttributeError(self._missing_name_message(name))
        module_name, _, attribute = target.partition(":")
        value: Any = importlib.import_module(module_name)
        if attribute:
            value = getattr(value, attribute)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return list(self.__all__)

    def _missing_name_message(self, name: str) -> str:
        if name in self._unsupported:
            return f"{self.display_name}.{name} is not supplied. {self._unsupported[name]}"
        message = f"module {self.display_name!r} has no attribute {name!r}"
        matches = difflib.get_close_matches(name, self.__all__, n=3)
        return f"{message}. Did you mean {' or '.join(matches)}?" if matches else f"{message}."


def register_lazy_modules(
    name: str,
    display_name: str,
    namespaces: Mapping[str, Mapping[str, str]],
    unsupported: Mapping[str, str],
) -> LazyModule:
    """Create a `LazyModule` with submodules, which are lazy too, and register all in sys.modules.

    Args:
      namespaces: maps the dotted path of a module below the root, "" for the root, to a dict of the
        module's names → import targets, as in `LazyModule`. Parents come before their submodules.
      unsupported: maps the dotted path of a name below the root to a sentence for the error
        message, which says what replaces the name.
    """
    modules: dict[str, LazyModule] = {}
    for path, targets in namespaces.items():
        prefix = f"{path}." if path else ""
        unsupported_in_module = {
            unsupported_path[len(prefix) :]: replacement
            for unsupported_path, replacement in unsupported.items()
            if unsupported_path.startswith(prefix) and "." not in unsupported_path[len(prefix) :]
        }
        suffix = f".{path}" if path else ""
        modules[path] = LazyModule(
            f"{name}{suffix}", f"{display_name}{suffix}", targets, unsupported_in_module
        )
        if path:
            parent, _, last = path.rpartition(".")
            modules[parent].add_submodule(last, modules[path])
    return modules[""]
