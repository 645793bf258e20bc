"""Classifies names of tf.contrib: as supplied by tpuserve, gone or unknown."""

import difflib
import importlib.util
from collections.abc import Iterable

import trainer
from trainer.compat import contrib_missing_names, contrib_module_aliases
from trainer.compat.contrib_module_aliases import MODULE_ALIASES, PACKAGE_EXPORTS
from trainer.compat.contrib_replacements import REPLACEMENTS
from trainer.migration.names import static_index
from trainer.migration.names.classification import NameClassification, NameStatus

_OURS = "trainer.compat.contrib"


def classify(path: str) -> NameClassification:
    """Classify a name of tf.contrib.

    Args:
      path: the dotted path below tf.contrib, such as "tpu.TPUEstimator"; "" for tf.contrib itself.
    """
    if any(path.startswith(f"{package}.") for package in PACKAGE_EXPORTS):
        status = _classify_export(path)
        if status is not None:
            return status
    aliases = [alias for alias in MODULE_ALIASES if f"{path}.".startswith(f"{alias}.")]
    alias = max(aliases, key=len, default=None)
    is_package = path not in (static_index.public_names(_OURS) or ()) and any(
        known.startswith(f"{path}.") for known in MODULE_ALIASES
    )
    if alias is not None and (alias == path or not is_package):
        return classify_in_module(
            MODULE_ALIASES[alias], path[len(alias) + 1 :], f"tf.contrib.{alias}"
        )
    if is_package:
        # The path names a package of tf.contrib. Classify the package as supplied if tpuserve
        # supplies a module inside it, because the program will use that module.
        return NameClassification(NameStatus.SUPPLIED)
    return classify_in_module(_OURS, path, "tf.contrib")


def _classify_export(path: str) -> NameClassification | None:
    """Classify a name that a package inside tf.contrib re-exports from another module."""
    for package, module in PACKAGE_EXPORTS.items():
        name = path.removeprefix(f"{package}.").partition(".")[0]
        if path.startswith(f"{package}.") and name in (static_index.public_names(module) or ()):
            return classify_supplied(module, name)
    return None


def classify_in_module(module: str, path: str, shown: str) -> NameClassification:
    """Classify a name in a module that replaces a module of tf.contrib.

    Args:
      path: the dotted path of the name in the module, such as "TPUEstimator"; "" for the module
        itself.
      shown: the name of the replaced module, such as "tf.contrib.tpu", for explanations.
    """
    if module.startswith("tensorflow."):
        exists = static_index.is_inside_tensorflow(f"{module}.{path}".rstrip("."))
        return (
            NameClassification(NameStatus.UNKNOWN)
            if exists is False
            else NameClassification(NameStatus.SUPPLIED, module)
        )
    full_name = f"{shown}.{path}"
    needed = contrib_module_aliases.find_needed_package(module)
    if needed is not None and importlib.util.find_spec(needed) is None:
        return NameClassification(
            NameStatus.GONE, contrib_missing_names.find_replacement(shown) or ""
        )
    if needed is not None:
        return NameClassification(NameStatus.SUPPLIED, module)
    for part in filter(None, path.split(".")):
        names = static_index.public_names(module) or ()
        if part not in names:
            return _classify_missing(part, names, shown, full_name)
        shown = f"{shown}.{part}"
        if static_index.public_names(f"{module}.{part}") is None:
            # `part` names a class or a function. The rest of the path names its attributes, which
            # are not checked.
            return classify_supplied(module, part)
        module = f"{module}.{part}"
    return NameClassification(NameStatus.SUPPLIED, module)


def classify_supplied(module: str, name: str) -> NameClassification:
    """Classify a name that tpuserve supplies, and say where the name is defined."""
    origin, original = static_index.find_definition(module, name)
    if origin.startswith("tensorflow"):
        return NameClassification(NameStatus.SUPPLIED, f"{origin}.{original}")
    if original in trainer.__all__ and not origin.startswith("trainer.compat"):
        return NameClassification(NameStatus.SUPPLIED, f"trainer.{original}")
    return NameClassification(NameStatus.SUPPLIED, f"{origin}.{original}")


def classify_unknown(name: str, names: Iterable[str]) -> NameClassification:
    """Classify a name as unknown, and suggest similar names."""
    similar = difflib.get_close_matches(name, list(names), n=3)
    return NameClassification(
        NameStatus.UNKNOWN, f"Did you mean {' or '.join(similar)}?" if similar else ""
    )


def _classify_missing(
    name: str, names: Iterable[str], shown: str, full_name: str
) -> NameClassification:
    """Classify a name that a module of tf.contrib lacks: as gone or as unknown."""
    missing = f"{shown}.{name}"
    own = [known for known in REPLACEMENTS if f"{known}.".startswith(f"{missing}.")]
    replacement = contrib_missing_names.find_replacement(full_name)
    suggestion = classify_unknown(name, names)
    # Give the most helpful advice that exists. A replacement of this particular name comes first, a
    # similar name in the module second, and a replacement of the whole module last.
    if replacement is None or (
        suggestion.says and not any(f"{full_name}.".startswith(f"{known}.") for known in own)
    ):
        return suggestion
    return NameClassification(NameStatus.GONE, replacement)
