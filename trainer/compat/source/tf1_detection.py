"""Whether a program is written for TensorFlow 1, found by reading it. No TensorFlow here."""

import ast
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source import api_names
from trainer.compat.source.name_references import NameReference, find_name_references
from trainer.compat.source.paths import is_library_file
from trainer.compat.source.program import Program

_V1 = "tensorflow.compat.v1"


@dataclass(frozen=True)
class Tf1Evidence:
    """What shows that a program is written for TensorFlow 1.

    Attributes:
      file: its name.
      line: from 1.
      name: as the program writes it.
    """

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} names {self.name}"


def find_tf1_evidence(program: Program) -> Tf1Evidence | None:
    """The first name in a program that TensorFlow 2 has not and TensorFlow 1 had.

    The program is its main file, and the files in its directories that this imports.
    """
    unread: list[tuple[bytes, Path | None, str]] = [(program.source, program.file, program.name)]
    seen: set[Path] = set()
    while unread:
        source, path, shown = unread.pop(0)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            # Python will say so when it gets there.
            continue
        for use in find_name_references(tree):
            if is_tf1_only(use):
                return Tf1Evidence(shown, use.line, use.written_name)
        for file in _imported(tree, path, program.directories) if path else ():
            if file not in seen:
                seen.add(file)
                unread.append((file.read_bytes(), file, os.path.relpath(file)))
    return None


def is_tf1_only(use: NameReference) -> bool:
    """Whether only TensorFlow 1 gives what a program names, in the way that it is named."""
    root, _, name = use.name.partition(".")
    if use.name.startswith(_V1):
        name = use.name[len(_V1) + 1 :]
        # Said as it is; but tf.contrib was of TensorFlow 1 under every name.
        return name.split(".")[0] == "contrib"
    if root != "tensorflow" or not name:
        return False
    if name.split(".")[0] == "contrib":
        return True
    return not api_names.is_public_name(name, "v2") and api_names.is_public_name(name, "v1")


def _imported(tree: ast.Module, importer: Path, directories: Sequence[Path]) -> Iterator[Path]:
    """The files that a module imports, as far as they are below some directories."""
    for node in ast.walk(tree):
        starts = directories
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                starts = [importer.parents[node.level - 1]]
            module = node.module or ""
            names = [module, *(f"{module}.{each.name}".lstrip(".") for each in node.names)]
        else:
            continue
        for start, name in itertools.product(starts, filter(None, names)):
            place = start.joinpath(*name.split("."))
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file() and not is_library_file(file.resolve()):
                    yield file
