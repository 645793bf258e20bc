"""What a file of a program names, each name with what becomes of it and its lines."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source.name_references import uses
from trainer.migration.names import (
    arguments,
    guarded_names,
    other_modules,
    shadowed_names,
    tensorflow_names,
)
from trainer.migration.names.classification import Kind, Verdict
from trainer.migration.program.sources import Source

_FLAGS = tuple(
    f"tensorflow.{each}.FLAGS."
    for each in ("flags", "app.flags", "compat.v1.flags", "compat.v1.app.flags")
)


@dataclass(frozen=True)
class Finding:
    """One name in one file.

    Attributes:
      file: as it is shown.
      lines: where the name stands, from 1, increasing.
      written: as the program writes it.
      name: the whole name: "tensorflow.train.Saver".
      kind: what becomes of it.
      says: who supplies it, what replaces it, or which names come near; may be empty.
    """

    file: str
    lines: tuple[int, ...]
    written: str
    name: str
    kind: Kind
    says: str


def of(source: Source, *, tf1: bool, directories: Iterable[Path]) -> list[Finding]:
    """Everything that a file names of TensorFlow, and the modules that it cannot import.

    Args:
      source: the file.
      tf1: whether the program gets TensorFlow 1's names.
      directories: where the program has modules of its own.

    Returns:
      In the order of their first lines.
    """
    lines: dict[tuple[str, str, Verdict], set[int]] = {}
    for line, written, name, verdict in _said(source.tree, tf1, tuple(directories)):
        lines.setdefault((written, name, verdict), set()).add(line)
    found = [
        Finding(source.file, tuple(sorted(each)), written, name, verdict.kind, verdict.says)
        for (written, name, verdict), each in lines.items()
    ]
    return sorted(found, key=lambda each: (each.lines, each.written))


def _said(
    tree: ast.Module, tf1: bool, directories: tuple[Path, ...]
) -> Iterator[tuple[int, str, str, Verdict]]:
    tried = other_modules.tried_lines(tree)
    shadowed, guarded = shadowed_names.of(tree), guarded_names.of(tree)
    said = uses(tree)
    for use in said:
        # The program's own names, and its own flags.
        if (use.line, use.shown) in shadowed or use.name.startswith(_FLAGS):
            continue
        verdict = tensorflow_names.judge(use, tf1=tf1)
        is_asked_for = use.line in tried if use.is_import else (use.line, use.shown) in guarded
        if verdict.kind.runs or not is_asked_for:
            yield use.line, use.shown, use.name, verdict
    for line, written, name, verdict in arguments.unknown(tree, tf1=tf1):
        yield line, written, name, verdict
    for line, name, verdict in other_modules.missing(tree, directories):
        yield line, name, name, verdict
