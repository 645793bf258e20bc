"""What is said of a name of tf.contrib that is not supplied."""

import contextlib
import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from trainer.compat.contrib_names.module_aliases import MODULE_ALIASES
from trainer.compat.contrib_names.replacements import REPLACEMENTS


def getattr_for(module: str, names: Sequence[str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module of tf.contrib.

    "tf.contrib.tpu.python.tpu.tpu_estimator" is found so by a program that has not imported it.

    Args:
      module: as a program names it: "tf.contrib.data".
      names: what the module has.
    """

    def __getattr__(name: str) -> Any:
        form = f"{module}.{name}".removeprefix("tf.contrib.")
        if _is_alias_prefix(form):
            # Without the finder of `trainer.compat.install` there is no tensorflow.contrib.
            with contextlib.suppress(ModuleNotFoundError):
                return importlib.import_module(f"tensorflow.contrib.{form}")
        raise missing_name_error(module, name, names)

    return __getattr__


def _is_alias_prefix(path: str) -> bool:
    return any(f"{each}.".startswith(f"{path}.") for each in MODULE_ALIASES)


def missing_name_error(module: str, name: str, names: Sequence[str]) -> AttributeError:
    """The error that says what replaces a name, or which names of the module come near it."""
    asked = f"{module}.{name}"
    if name.startswith("__"):
        return AttributeError(f"{asked} is not there")
    near = difflib.get_close_matches(name, names, n=3)
    if near and asked not in REPLACEMENTS:
        return AttributeError(f"{asked} is not known. Did you mean {' or '.join(near)}?")
    found = find_replacement(asked)
    if found is not None:
        return AttributeError(f"{asked} is not supplied: TensorFlow 2 has no tf.contrib. {found}")
    return AttributeError(f"{asked} is not known. It has {', '.join(sorted(names))}.")


def find_replacement(name: str) -> str | None:
    """What replaces "tf.contrib.X.name", or else its module; None where nothing is known."""
    while name.startswith("tf.contrib."):
        if name in REPLACEMENTS:
            return REPLACEMENTS[name]
        name = name.rpartition(".")[0]
    return None
