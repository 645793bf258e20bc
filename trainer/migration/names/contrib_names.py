"""What becomes of a name of tf.contrib."""

import difflib
from collections.abc import Iterable

import trainer
from trainer.compat.contrib_names import missing_names
from trainer.compat.contrib_names.module_aliases import MODULES
from trainer.compat.contrib_names.replacements import REPLACEMENTS
from trainer.migration.names import static_index
from trainer.migration.names.classification import Kind, Verdict

_OURS = "trainer.compat.contrib"


def judge(path: str) -> Verdict:
    """What becomes of "tpu.TPUEstimator", a path below tf.contrib; "" is that itself."""
    forms = [each for each in MODULES if f"{path}.".startswith(f"{each}.")]
    form = max(forms, key=len, default=None)
    if form is not None:
        return in_module(MODULES[form], path[len(form) + 1 :], f"tf.contrib.{form}")
    if "." in path and any(each.startswith(f"{path}.") for each in MODULES):
        # A package on the way to a module.
        return Verdict(Kind.SUPPLIED)
    return in_module(_OURS, path, "tf.contrib")


def in_module(module: str, path: str, shown: str) -> Verdict:
    """What becomes of a path inside a module that stands for one of tf.contrib.

    Args:
      module: of ours, or TensorFlow's.
      path: inside of it; "" is the module.
      shown: what programs call the module.
    """
    if module.startswith("tensorflow."):
        there = static_index.is_inside_tensorflow(f"{module}.{path}".rstrip("."))
        return Verdict(Kind.UNKNOWN) if there is False else Verdict(Kind.SUPPLIED, module)
    whole = f"{shown}.{path}"
    for part in filter(None, path.split(".")):
        names = static_index.public_names(module) or ()
        if part not in names:
            return _absent(part, names, shown, whole)
        shown = f"{shown}.{part}"
        if static_index.public_names(f"{module}.{part}") is None:
            # A class or a function: what it has inside is its own.
            return supplied(module, part)
        module = f"{module}.{part}"
    return Verdict(Kind.SUPPLIED, module)


def supplied(module: str, name: str) -> Verdict:
    """A name that a module of ours has, with where it comes from."""
    origin, original = static_index.home(module, name)
    if origin.startswith("tensorflow"):
        return Verdict(Kind.SUPPLIED, f"{origin}.{original}")
    if original in trainer.__all__ and not origin.startswith("trainer.compat"):
        return Verdict(Kind.SUPPLIED, f"trainer.{original}")
    return Verdict(Kind.SUPPLIED, f"{origin}.{original}")


def unknown(name: str, names: Iterable[str]) -> Verdict:
    """A name that is in no table, with those that come near it."""
    near = difflib.get_close_matches(name, list(names), n=3)
    return Verdict(Kind.UNKNOWN, f"Did you mean {' or '.join(near)}?" if near else "")


def _absent(name: str, names: Iterable[str], shown: str, whole: str) -> Verdict:
    """A name that a module has not, which is the last of `shown` and a name, or leads to more."""
    asked = f"{shown}.{name}"
    own = [each for each in REPLACEMENTS if f"{each}.".startswith(f"{asked}.")]
    replacement = missing_names.replacement(whole)
    near = unknown(name, names)
    # What replaces a whole module comes after the names that it has.
    if replacement is None or (
        near.says and not any(f"{whole}.".startswith(f"{each}.") for each in own)
    ):
        return near
    return Verdict(Kind.GONE, replacement)
