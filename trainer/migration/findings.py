"""Finds the TensorFlow names that a file of a program uses, and checks whether they still exist."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source import name_references
from trainer.compat.source.name_references import find_name_references
from trainer.migration.names import arguments, other_modules, tensorflow_names
from trainer.migration.names.classification import NameClassification, NameStatus
from trainer.migration.program.reachability import UnreachedCode
from trainer.migration.program.sources import SourceFile

_FLAGS = tuple(
    f"tensorflow.{module}.FLAGS."
    for module in ("flags", "app.flags", "compat.v1.flags", "compat.v1.app.flags")
)


@dataclass(frozen=True)
class NameFinding:
    """A name that a file of a program uses, and whether the name still exists.

    The name belongs to a TensorFlow symbol, a module, or a symbol that Python or NumPy has removed.

    Attributes:
      lines: the numbers of the lines that use the name, from 1, in increasing order.
      written: the name as the program writes it, such as "tf.train.Saver".
      name: the full name, such as "tensorflow.train.Saver".
      says: an explanation for the user: where the name is defined, what replaces it, or which
        similar names exist. It may be empty.
    """

    file: str
    lines: tuple[int, ...]
    written: str
    name: str
    kind: NameStatus
    says: str
    is_reached: bool = True

    @property
    def stops(self) -> bool:
        """Whether the program may fail because it uses this name, which does not exist."""
        return self.is_reached and not self.kind.runs


def find_references(
    source: SourceFile,
    *,
    tf1: bool,
    directories: Iterable[Path],
    unreached: UnreachedCode,
) -> list[NameFinding]:
    """Find the TensorFlow names, missing modules and removed Python names that a file uses.

    Args:
      tf1: whether `import tensorflow` gives the program TensorFlow 1's names.
      unreached: what the program does not run. A missing name that is used both in there and in
        other lines gets two findings, one for each group.
    """
    lines: dict[tuple[str, str, NameClassification, bool], set[int]] = {}
    for line, written, name, status in _references(source.tree, tf1, tuple(directories)):
        is_reached = status.kind.runs or not unreached.contains(line, written)
        lines.setdefault((written, name, status, is_reached), set()).add(line)
    findings = [
        NameFinding(
            source.file, tuple(sorted(numbers)), written, name, status.kind, status.says, is_reached
        )
        for (written, name, status, is_reached), numbers in lines.items()
    ]
    return sorted(findings, key=lambda finding: (finding.lines, finding.written))


def _references(
    tree: ast.Module, tf1: bool, directories: tuple[Path, ...]
) -> Iterator[tuple[int, str, str, NameClassification]]:
    uses = find_name_references(tree)
    optional_lines = name_references.find_optional_import_lines(tree)
    # These two take most of the time, and many files of packages do not use TensorFlow.
    shadowed = arguments.find_shadowed_names(tree) if uses else set()
    guarded = name_references.find_guarded_names(tree) if uses else set()
    for use in uses:
        # Skip attributes of a local variable that has the name of a TensorFlow module, and
        # attributes of tf.flags.FLAGS, which are the program's own command-line flags.
        if (use.line, use.written_name) in shadowed or use.name.startswith(_FLAGS):
            continue
        status = tensorflow_names.classify(use, tf1=tf1)
        is_optional = (
            use.line in optional_lines if use.is_import else (use.line, use.written_name) in guarded
        )
        if status.kind.runs or not is_optional:
            yield use.line, use.written_name, use.name, status
    for line, written, name, status in arguments.unknown_arguments(tree, tf1=tf1):
        yield line, written, name, status
    yield from other_modules.find_removed_names(tree)
    for line, name, status in other_modules.find_missing(tree, directories):
        yield line, name, name, status
