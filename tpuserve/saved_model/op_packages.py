"""Knows which packages register ops that TensorFlow itself lacks."""

import importlib.util
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import UnsupportedModel

TENSORFLOW_TEXT = "tensorflow_text"
# The start of an op's name → the Python package that registers the op. Most of the packages have a
# namespace; tensorflow_text has one only for its newer ops.
_PACKAGES = {
    "TFText>": TENSORFLOW_TEXT,
    "CaseFoldUTF8": TENSORFLOW_TEXT,
    "ConstrainedSequence": TENSORFLOW_TEXT,
    "FastBertNormalize": TENSORFLOW_TEXT,
    "FastSentencepiece": TENSORFLOW_TEXT,
    "FastWordpiece": TENSORFLOW_TEXT,
    "FindSourceOffsets": TENSORFLOW_TEXT,
    "MaxSpanningTree": TENSORFLOW_TEXT,
    "NormalizeUTF8": TENSORFLOW_TEXT,
    "PhraseTokenize": TENSORFLOW_TEXT,
    "RegexSplitWithOffsets": TENSORFLOW_TEXT,
    "RougeL": TENSORFLOW_TEXT,
    "SentenceFragments": TENSORFLOW_TEXT,
    "Sentencepiece": TENSORFLOW_TEXT,
    "SplitMergeTokenize": TENSORFLOW_TEXT,
    "TokenizerFromLogits": TENSORFLOW_TEXT,
    "UnicodeScriptTokenize": TENSORFLOW_TEXT,
    "WhitespaceTokenize": TENSORFLOW_TEXT,
    "Wordpiece": TENSORFLOW_TEXT,
    "SimpleML": "tensorflow_decision_forests",
    "Addons>": "tensorflow_addons",
    "IO>": "tensorflow_io",
    "TFRA>": "tensorflow_recommenders_addons",
    "Horovod": "horovod",
}
KNOWN_PACKAGES = frozenset(_PACKAGES.values())
# Package → what pip installs, if an extra of tpuserve names a tested version.
_EXTRAS = {TENSORFLOW_TEXT: "'.[text]'"}


@dataclass(frozen=True)
class ImportedOps:
    """The ops that a process has in addition to TensorFlow's.

    Attributes:
      packages: the known packages whose ops are registered.
      named: the ops of the packages and libraries that the user has named, and so trusts.
    """

    packages: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()


NO_IMPORTS = ImportedOps()
"""Nothing but TensorFlow's ops."""


class OpsNotImported(UnsupportedModel):
    """A model has ops of packages that this process has not imported.

    Attributes:
      packages: package → one of its ops that the model has.
    """

    def __init__(self, message: str, packages: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.packages = packages or {}


def find_package(op: str) -> str | None:
    """Return the Python package that registers an op; None for TensorFlow or an unknown package."""
    return next((package for start, package in _PACKAGES.items() if op.startswith(start)), None)


def check_imported(meta_graphs: Iterable[Any], imported: ImportedOps, where: object) -> None:
    """Check that the packages whose ops are in MetaGraphDefs are imported.

    Args:
      where: the model, for the text of the error.

    Raises:
      OpsNotImported: a known package registers an op of the model, and is not imported.
    """
    packages: dict[str, str] = {}
    for op in sorted(_ops(meta_graphs) - imported.named):
        package = find_package(op)
        if package is not None and package not in imported.packages:
            packages.setdefault(package, op)
    if packages:
        advice = "; ".join(_advise(op, imported) for op in packages.values())
        raise OpsNotImported(f"cannot load {where}: {advice}.", packages)


def _ops(meta_graphs: Iterable[Any]) -> set[str]:
    ops: set[str] = set()
    for meta_graph in meta_graphs:
        graph = meta_graph.graph_def
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            ops.update(node.op for node in nodes)
        ops.difference_update(function.signature.name for function in graph.library.function)
    return ops


def unknown_ops_error(
    where: object, ops: Counter[str], imported: ImportedOps = NO_IMPORTS
) -> UnsupportedModel:
    """Return the error about ops of a model that are unknown.

    Args:
      ops: op → the number of nodes that have it.
      imported: what is imported, and lacks the ops all the same.
    """
    advice: dict[str | None, str] = {}
    for op in sorted(ops):
        package = find_package(op)
        if package is not None:
            advice.setdefault(package, _advise(op, imported))
    foreign = ", ".join(
        f"{count} {op}" for op, count in sorted(ops.items()) if find_package(op) is None
    )
    if foreign:
        advice[None] = (
            f"it holds ops of another package, or of a later TensorFlow: {foreign}. Name the "
            f"package or the library that registers them with --import_ops, or export the model "
            f"without them"
        )
    return UnsupportedModel(f"cannot load {where}: {'; '.join(advice.values())}.")


def _advise(op: str, imported: ImportedOps) -> str:
    """Return what to do to load an op of a known package."""
    package = find_package(op)
    assert package is not None
    distribution = package.replace("_", "-")
    if package in imported.packages:
        return f"{op} is of another version of {distribution} than the installed one: install it"
    flag = f"--import_ops={package}"
    if is_installed(package):
        return f"{op} is of {distribution}: import it with {flag} if you trust it"
    if package in _EXTRAS:
        return f"{op} is of {distribution}: pip install {_EXTRAS[package]}"
    return (
        f"{op} is of {distribution}: install its version for this TensorFlow, if there is one, and "
        f"import it with {flag}"
    )


def is_installed(package: str) -> bool:
    """Return whether a Python package is installed; only its top level is looked at."""
    return importlib.util.find_spec(package.partition(".")[0]) is not None
