"""Classification of names of tf.contrib."""

import difflib
from collections.abc import Iterable

import trainer
from trainer.compat.contrib_names import missing_names
from trainer.compat.contrib_names.module_aliases import MODULE_ALIASES, PACKAGE_EXPORTS
from trainer.compat.contrib_names.replacements import REPLACEMENTS
from trainer.migration.names import static_index
from trainer.migration.names.classification import Classification, NameStatus

_OURS = "trainer.compat.contrib"


def classify(path: str) -> Classification:
    """Classify a path below tf.contrib, such as "tpu.TPUEstimator"; "" is tf.contrib itself."""
    if any(path.startswith(f"{package}.") for package in PACKAGE_EXPORTS):
        status = _classify_export(path)
        if status is not None:
            return status
    aliases = [alias for alias in MODULE_ALIASES if f"{path}.".startswith(f"{alias}.")]
    alias = max(aliases, key=len, default=None)
    is_package = "." in path and any(known.startswith(f"{path}.") for known in MODULE_ALIASES)
    if alias is not None and (alias == path or not is_package):
        return classify_in_module(
            MODULE_ALIASES[alias], path[len(alias) + 1 :], f"tf.contrib.{alias}"
        )
    if is_package:
        # The path names a package of tf.contrib that tpuserve does not supply itself. The path
        # counts as supplied, because tpuserve supplies a module inside the package.
        return Classification(NameStatus.SUPPLIED)
    return classify_in_module(_OURS, path, "tf.contrib")


def _classify_export(path: str) -> Classification | None:
    """Classify a name that a package of tf.contrib takes from another module; None for others."""
    for package, module in PACKAGE_EXPORTS.items():
        name = path.removeprefix(f"{package}.").partition(".")[0]
        if path.startswith(f"{package}.") and name in (static_index.public_names(module) or ()):
            return classify_supplied(module, name)
    return None


def classify_in_module(module: str, path: str, shown: str) -> Classification:
    """Classify the rest of a name, given the module that replaces a module of tf.contrib.

    Args:
      module: the replacing module, of tpuserve or of TensorFlow.
      path: the name inside the module, such as "TPUEstimator"; "" is the module itself.
      shown: the module's name in the program, such as "tf.contrib.tpu".
    """
    if module.startswith("tensorflow."):
        exists = static_index.is_inside_tensorflow(f"{module}.{path}".rstrip("."))
        return (
            Classification(NameStatus.UNKNOWN)
            if exists is False
            else Classification(NameStatus.SUPPLIED, module)
        )
    full_name = f"{shown}.{path}"
    for part in filter(None, path.split(".")):
        names = static_index.public_names(module) or ()
        if part not in names:
            return _classify_missing(part, names, shown, full_name)
        shown = f"{shown}.{part}"
        if static_index.public_names(f"{module}.{part}") is None:
            # Stop here: the name is a class or a function, and the report does not check whether
            # its attributes exist.
            return classify_supplied(module, part)
        module = f"{module}.{part}"
    return Classification(NameStatus.SUPPLIED, module)


def classify_supplied(module: str, name: str) -> Classification:
    """Classify a name of a tpuserve module as supplied, and name the module that defines it."""
    origin, original = static_index.find_definition(module, name)
    if origin.startswith("tensorflow"):
        return Classification(NameStatus.SUPPLIED, f"{origin}.{original}")
    if original in trainer.__all__ and not origin.startswith("trainer.compat"):
        return Classification(NameStatus.SUPPLIED, f"trainer.{original}")
    return Classification(NameStatus.SUPPLIED, f"{origin}.{original}")


def classify_unknown(name: str, names: Iterable[str]) -> Classification:
    """Classify a name as unknown, and suggest the similar ones among `names`."""
    similar = difflib.get_close_matches(name, list(names), n=3)
    return Classification(
        NameStatus.UNKNOWN, f"Did you mean {' or '.join(similar)}?" if similar else ""
    )


def _classify_missing(
    name: str, names: Iterable[str], shown: str, full_name: str
) -> Classification:
    """Classify a name that a module lacks, as gone or as unknown.

    Args:
      name: the missing name.
      names: the names of the module.
      shown: the module's name in the program, such as "tf.contrib.tpu".
      full_name: the complete name in the program, which may continue after the missing name.
    """
    missing = f"{shown}.{name}"
    own = [known for known in REPLACEMENTS if f"{known}.".startswith(f"{missing}.")]
    replacement = missing_names.find_replacement(full_name)
    suggestion = classify_unknown(name, names)
    # Suggest a similar name in the same module if there is one. That is more helpful than the
    # replacement of the whole module, unless the table has a replacement for this very name.
    if replacement is None or (
        suggestion.says and not any(f"{full_name}.".startswith(f"{known}.") for known in own)
    ):
        return suggestion
    return Classification(NameStatus.GONE, replacement)
