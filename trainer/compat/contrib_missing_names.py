"""Builds the errors that programs get for symbols of tf.contrib that tpuserve does not supply."""

import contextlib
import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from trainer.compat.contrib_module_aliases import MODULE_ALIASES, find_needed_package
from trainer.compat.contrib_replacements import REPLACEMENTS


def getattr_for(module: str, names: Sequence[str]) -> Callable[[str], Any]:
    """Return a function for use as the `__getattr__` of a module of tf.contrib.

    Python calls the function with a name that the module lacks.

    Args:
      module: the module's name in programs, such as "tf.contrib.data".
    """

    def __getattr__(name: str) -> Any:
        path = f"{module}.{name}".removeprefix("tf.contrib.")
        if _is_alias_prefix(path):
            # Treat the name as missing if the import fails. It fails in a process in which
            # `trainer.compat.install` has not installed the import hook for tensorflow.contrib.
            with contextlib.suppress(ModuleNotFoundError):
                return importlib.import_module(f"tensorflow.contrib.{path}")
        raise missing_name_error(module, name, names)

    return __getattr__


def _is_alias_prefix(path: str) -> bool:
    """Return whether a path below tf.contrib is a supplied module, or a parent package of one."""
    return any(f"{alias}.".startswith(f"{path}.") for alias in MODULE_ALIASES)


def missing_name_error(module: str, name: str, names: Sequence[str]) -> AttributeError:
    """Return the error for a name that a module of tf.contrib does not have.

    The text says what replaces the name, or lists similar names of the module.

    Args:
      module: the module's name in programs, such as "tf.contrib.data".
    """
    full_name = f"{module}.{name}"
    if name.startswith("__"):
        return AttributeError(f"{full_name} does not exist")
    similar = difflib.get_close_matches(name, names, n=3)
    if similar and full_name not in REPLACEMENTS:
        return AttributeError(f"{full_name} is not known. Did you mean {' or '.join(similar)}?")
    advice = find_replacement(full_name)
    if advice is not None:
        return AttributeError(
            f"{full_name} is not supplied: TensorFlow 2 has no tf.contrib. {advice}"
        )
    return AttributeError(f"{full_name} is not known. {module} has {', '.join(sorted(names))}.")


def missing_module_error(name: str) -> ModuleNotFoundError:
    """Return the error for a module of tf.contrib that is not supplied.

    Args:
      name: the module's full name, such as "tensorflow.contrib.gan".
    """
    display_name = f"tf.{name.partition('.')[2]}"
    replacement = find_replacement(display_name)
    advice = replacement or "Run `tpuserve migrate` to see what replaces the program's names."
    return ModuleNotFoundError(
        f"{display_name} is not supplied: TensorFlow 2 has no tf.contrib. {advice}", name=name
    )


def find_replacement(name: str) -> str | None:
    """Return a sentence that says what replaces a name of tf.contrib, or the name's module.

    Args:
      name: the full name, such as "tf.contrib.checkpoint.Saver".

    Returns:
      None if no replacement is known.
    """
    while name.startswith("tf.contrib."):
        alias = MODULE_ALIASES.get(name.removeprefix("tf.contrib."), "trainer")
        package = find_needed_package(alias)
        if package is not None:
            return f"A package has it: pip install {package.replace('_', '-')}."
        if name in REPLACEMENTS:
            return REPLACEMENTS[name]
        name = name.rpartition(".")[0]
    return None
