"""Python's garbage collector, off while TensorFlow is imported.

The import makes objects by the million and no garbage. The collector would look through them for
it, again and again, which costs a fifth of the time that the import takes.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


@contextmanager
def gc_disabled() -> Iterator[None]:
    """No collections meanwhile; what was made stays out of all later ones.

    Where the collector is off already, nothing changes.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Modules stay for as long as the process does.
        gc.freeze()
        gc.enable()


def disable_gc_on_import(name: str) -> None:
    """Has the first import of a module, by whomever, run uncollected."""
    if name not in sys.modules and not any(
        isinstance(each, _GcDisablingFinder) and each.name == name for each in sys.meta_path
    ):
        sys.meta_path.insert(0, _GcDisablingFinder(name))


class _GcDisablingFinder:
    """Finds one module as Python would, and has it run uncollected the first time."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of that module; of others, and where Python finds none, None."""
        spec = PathFinder.find_spec(name, path, target) if name == self.name else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_uncollected(module: ModuleType) -> None:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            with gc_disabled():
                execute(module)

        # In the place of the loader, it would hide what else the loader can do.
        spec.loader.exec_module = execute_uncollected  # type: ignore[method-assign]
        return spec
