"""Makes an existing module importable under another name."""

import importlib
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

from trainer.compat import contrib_missing_names, contrib_module_aliases


class _AliasLoader(Loader):
    """A loader that makes an existing module available under another name."""

    def __init__(self, aliased_module: str | ModuleType) -> None:
        self._aliased_module = aliased_module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        aliased_module = self._aliased_module
        if isinstance(aliased_module, str):
            needed = contrib_module_aliases.find_needed_package(aliased_module)
            try:
                aliased_module = importlib.import_module(aliased_module)
            except ModuleNotFoundError as error:
                if needed is None or (error.name or "").partition(".")[0] != needed:
                    raise
                raise contrib_missing_names.missing_module_error(module.__name__) from error
        if not hasattr(aliased_module, "__path__"):
            # Turn the existing module into a package by giving it a __path__, because programs
            # import submodules of it, which Python allows for packages only.
            aliased_module.__path__ = []
        # Replace the new, empty module in sys.modules by the existing one: Python's import system
        # takes the imported module from sys.modules after exec_module has returned.
        sys.modules[module.__name__] = aliased_module


def make_alias_spec(name: str, aliased_module: str | ModuleType) -> ModuleSpec:
    """Return the spec of a module that another one replaces.

    Args:
      name: the full name under which programs import the module.
      aliased_module: the module that they get, or its full name.
    """
    return ModuleSpec(name, _AliasLoader(aliased_module), is_package=True)
