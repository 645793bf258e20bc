"""Finds out from the source of a program or package whether it is written for TensorFlow 1.

This module does not import TensorFlow.
"""

import ast
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trainer.compat.source import api_names, name_references
from trainer.compat.source.name_references import NameReference, find_name_references
from trainer.compat.source.paths import is_library_file
from trainer.compat.source.user_program import UserProgram

_V1 = "tensorflow.compat.v1"
_TPU = ".estimator.tpu."


@dataclass(frozen=True)
class Tf1Evidence:
    """A place in a source file that shows that a program or package is for TensorFlow 1.

    In this place the source uses a symbol that only TensorFlow 1 has.
    """

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} names {self.name}"


def find_tf1_evidence(program: UserProgram) -> Tf1Evidence | None:
    """Return the first place where a program uses a symbol that TensorFlow 1 had and 2 lacks.

    Returns None if there is no such place.
    """
    return _find_evidence(program, is_tf1_only)


def uses_tpu_estimator(program: UserProgram) -> bool:
    """Return whether a program uses a symbol such as tf.estimator.tpu.TPUEstimator.

    Symbols of tf.compat.v1.estimator.tpu and of tensorflow_estimator's package `tpu` count too.
    """
    return _find_evidence(program, lambda reference: _TPU in reference.name) is not None


def find_package_evidence(package: str, file: Path, seen: set[Path]) -> Tf1Evidence | None:
    """Return the first place where an installed package uses a symbol that only TensorFlow 1 has.

    Searches one module of the package and the package's `__init__.py`.

    Args:
      package: the name of the top-level package, such as "bert".
      seen: files of the package to skip, because earlier calls searched them. This call adds the
        files that it searches.

    Returns:
      None if there is none.
    """
    root = next((parent for parent in file.parents if parent.name == package), None)
    starts = [file] if root is None else [root / "__init__.py", file]
    place = file.parent if root is None else root.parent

    def is_in_package(path: Path) -> bool:
        return root is not None and root in path.parents

    unread: list[_Source] = [
        (path.read_bytes(), path, str(path.relative_to(place)))
        for path in starts
        if path.is_file() and path not in seen
    ]
    seen.update(starts)
    search = _find_unguarded_tf1_names
    return _find_in_files(unread, (place,), is_in_package, place, search, seen)


def _find_evidence(
    program: UserProgram, is_evidence: Callable[[NameReference], bool]
) -> Tf1Evidence | None:
    def is_own(path: Path) -> bool:
        return not is_library_file(path.resolve())

    def find(tree: ast.Module) -> Iterator[NameReference]:
        yield from filter(is_evidence, find_name_references(tree))

    unread = [(program.source, program.file, program.name)]
    return _find_in_files(unread, program.directories, is_own, Path.cwd(), find, set())


_Source: TypeAlias = tuple[bytes, Path | None, str]
"""A source file: its contents; its path, None if unknown; and its name in messages."""


def _find_in_files(
    unread: list[_Source],
    directories: Sequence[Path],
    is_own: Callable[[Path], bool],
    place: Path,
    find: Callable[[ast.Module], Iterator[NameReference]],
    seen: set[Path],
) -> Tf1Evidence | None:
    """Return the place of the first reference that `find` yields, in files or their imports."""
    while unread:
        source, path, display_name = unread.pop(0)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            # Skip a file that is not valid Python: if the program imports the file, Python reports
            # the error.
            continue
        for reference in find(tree):
            return Tf1Evidence(display_name, reference.line, reference.written_name)
        for file in _find_imported_files(tree, path, directories) if path else ():
            if file not in seen and is_own(file):
                seen.add(file)
                unread.append((file.read_bytes(), file, os.path.relpath(file, place)))
    return None


def _find_unguarded_tf1_names(tree: ast.Module) -> Iterator[NameReference]:
    """Yield the references of a file to symbols that only TensorFlow 1 has."""
    references = [reference for reference in find_name_references(tree) if is_tf1_only(reference)]
    if not references:
        return
    guarded = name_references.find_guarded_names(tree)
    optional_lines = name_references.find_optional_import_lines(tree)
    for reference in references:
        place = (reference.line, reference.written_name)
        if place not in guarded and not (reference.is_import and reference.line in optional_lines):
            yield reference


def is_tf1_only(reference: NameReference) -> bool:
    """Return whether TensorFlow 1 has the symbol of a reference and TensorFlow 2 lacks it.

    Symbols below tf.compat.v1 count as symbols of TensorFlow 2.
    """
    root, _, name = reference.name.partition(".")
    if reference.name.startswith(_V1):
        name = reference.name[len(_V1) + 1 :]
        # TensorFlow 2 has all names below tf.compat.v1 except those of tf.compat.v1.contrib.
        return name.split(".")[0] == "contrib"
    if root != "tensorflow" or not name:
        return False
    if name.split(".")[0] == "contrib":
        return True
    return not api_names.is_public_name(name, "v2") and api_names.is_public_name(name, "v1")


def _find_imported_files(
    tree: ast.Module, importer: Path, directories: Sequence[Path]
) -> Iterator[Path]:
    """Yield the source files of the modules and packages that a module imports."""
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
                if file.is_file():
                    yield file
