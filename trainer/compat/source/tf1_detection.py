"""Detects from its source whether a program is written for TensorFlow 1.

Does not import TensorFlow.
"""

import ast
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source import api_names
from trainer.compat.source.name_references import NameReference, find_name_references
from trainer.compat.source.paths import is_library_file
from trainer.compat.source.program import Program

_V1 = "tensorflow.compat.v1"
_TPU = ".estimator.tpu."


@dataclass(frozen=True)
class Tf1Evidence:
    """A TensorFlow symbol in a program that shows that the program is written for TensorFlow 1.

    Attributes:
      file: the path of the source file, as messages show it.
      line: the line number in the file, from 1.
      name: the name as the program writes it.
    """

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} names {self.name}"


def find_tf1_evidence(program: Program) -> Tf1Evidence | None:
    """Return the first use of a symbol that TensorFlow 1 had and TensorFlow 2 lacks."""
    return _find_evidence(program, is_tf1_only)


def uses_tpu_estimator(program: Program) -> bool:
    """Return whether the source of a program names a symbol of tf.compat.v1.estimator.tpu."""
    return _find_evidence(program, lambda reference: _TPU in reference.name) is not None


def _find_evidence(
    program: Program, is_evidence: Callable[[NameReference], bool]
) -> Tf1Evidence | None:
    """Return the first reference of a program for which a condition holds.

    Searches the program's main file, and the files in the program's directories that the main file
    imports, directly or indirectly. Returns None if there is no such name.
    """
    unread: list[tuple[bytes, Path | None, str]] = [(program.source, program.file, program.name)]
    seen: set[Path] = set()
    while unread:
        source, path, display_name = unread.pop(0)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            # Skip a file that is not valid Python. Python reports the error when it runs the file.
            continue
        for reference in find_name_references(tree):
            if is_evidence(reference):
                return Tf1Evidence(display_name, reference.line, reference.written_name)
        for file in _find_imported_files(tree, path, program.directories) if path else ():
            if file not in seen:
                seen.add(file)
                unread.append((file.read_bytes(), file, os.path.relpath(file)))
    return None


def is_tf1_only(reference: NameReference) -> bool:
    """Return whether TensorFlow 1 has the symbol of a reference and TensorFlow 2 lacks it.

    Symbols below tf.compat.v1 count as symbols of TensorFlow 2.
    """
    root, _, name = reference.name.partition(".")
    if reference.name.startswith(_V1):
        name = reference.name[len(_V1) + 1 :]
        # Of the names below tf.compat.v1, count only those of tf.compat.v1.contrib as TensorFlow
        # 1's: TensorFlow 2 has the others.
        return name.split(".")[0] == "contrib"
    if root != "tensorflow" or not name:
        return False
    if name.split(".")[0] == "contrib":
        return True
    return not api_names.is_public_name(name, "v2") and api_names.is_public_name(name, "v1")


def _find_imported_files(
    tree: ast.Module, importer: Path, directories: Sequence[Path]
) -> Iterator[Path]:
    """Yield the files below the given directories that a module imports.

    Args:
      tree: the syntax tree of the importing module.
      importer: the path of that module, to which relative imports refer.
      directories: the directories that hold the program's modules.
    """
    for node in ast.walk(tree):
        starts = directories
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                starts = [importer.parents[node.level - 1]]
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
        else:
            continue
        for start, name in itertools.product(starts, filter(None, names)):
            path = start.joinpath(*name.split("."))
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file() and not is_library_file(file.resolve()):
                    yield file
