import importlib
from types import ModuleType

import pytest

from trainer.compat import moved_names
from trainer.compat.imports import install_names


@pytest.mark.parametrize("module", moved_names.NAMES)
def test_every_moved_name_is_found_in_its_old_place(module: str) -> None:
    old = ModuleType(module)
    install_names.restore_moved_names(old)
    assert [name for name in moved_names.NAMES[module] if not hasattr(old, name)] == []
    importlib.import_module(module)


def test_every_moved_module_exists() -> None:
    for module in filter(None, moved_names.MODULES.values()):
        importlib.import_module(module)


def test_a_name_that_the_module_still_has_is_its_own() -> None:
    old = ModuleType("tensorflow.python.ops.array_ops")
    old.stack = "its own"  # type: ignore[attr-defined]
    install_names.restore_moved_names(old)
    assert old.stack == "its own"


def test_other_names_are_found_as_before_or_missing() -> None:
    old = ModuleType("tensorflow.python.ops.array_ops")
    install_names.restore_moved_names(old)
    with pytest.raises(AttributeError, match="array_ops' has no attribute 'stak'"):
        old.stak  # noqa: B018
    old.__getattr__ = lambda name: f"found {name}"  # type: ignore[method-assign]
    install_names.restore_moved_names(old)
    assert old.stak == "found stak"
