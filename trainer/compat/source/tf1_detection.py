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
_V1_OR_PRIVATE = (_V1, "tensorflow.core", "tensorflow.python", "tensorflow_estimator")
_CHOICES_OF_BEHAVIOUR = {
    f"{verb}_v2_{what}" for verb in ("disable", "enable") for what in ("behavior", "tensorshape")
}


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

    If there is none, it is the first place with the value of a dimension, such as x.shape[0].value,
    in a program that names only tensorflow.compat.v1 and leaves its behaviour to TensorFlow.

    Returns None if there is no such place.
    """
    dimension: Tf1Evidence | None = None
    all_references: list[NameReference] = []
    for tree, name in _read_program(program):
        references = find_name_references(tree)
        for reference in filter(is_tf1_only, references):
            return Tf1Evidence(name, reference.line, reference.written_name)
        all_references += references
        dimension = dimension or _find_dimension_value(tree, name)
    return dimension if all_references and all(map(_is_plain_v1, all_references)) else None


def _is_plain_v1(reference: NameReference) -> bool:
    """Return whether a name is of tf.compat.v1 or private, and does not choose the behaviour."""
    is_choice = reference.name.rpartition(".")[2] in _CHOICES_OF_BEHAVIOUR
    return reference.name.startswith(_V1_OR_PRIVATE) and not is_choice


def _find_dimension_value(tree: ast.Module, file: str) -> Tf1Evidence | None:
    """Find the value of a dimension of a shape, which is an int in TensorFlow 2."""
    guarded: set[tuple[int, str]] | None = None
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(
                attr="value",
                value=ast.Subscript(
                    value=ast.Attribute(attr="shape")
                    | ast.Call(func=ast.Attribute(attr="get_shape"))
                ),
            ):
                guarded = name_references.find_guarded_names(tree) if guarded is None else guarded
                line, name = node.end_lineno or node.lineno, ast.unparse(node)
                if (line, name) not in guarded:
                    return Tf1Evidence(file, line, name)
    return None


def uses_tpu_estimator(program: UserProgram) -> bool:
    """Return whether a program uses a symbol such as tf.estimator.tpu.TPUEstimator.

    Symbols of tf.compat.v1.estimator.tpu and of tensorflow_estimator's package `tpu` count too.
    """
    return any(
        _TPU in reference.name
        for tree, _ in _read_program(program)
        for reference in find_name_references(tree)
    )


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
    for tree, name in _read_files(unread, (place,), is_in_package, place, seen):
        for reference in _find_unguarded_tf1_names(tree):
            return Tf1Evidence(name, reference.line, reference.written_name)
    return None


def _read_program(program: UserProgram) -> Iterator[tuple[ast.Module, str]]:
    """Yield the script and the program's own modules that it imports, with their names."""

    def is_own(path: Path) -> bool:
        return not is_library_file(path.resolve())

    unread = [(program.source, program.file, program.name)]
    return _read_files(unread, program.directories, is_own, Path.cwd(), set())


_Source: TypeAlias = tuple[bytes, Path | None, str]
"""A source file: its contents; its path, None if unknown; and its name in messages."""


def _read_files(
    unread: list[_Source],
    directories: Sequence[Path],
    is_own: Callable[[Path], bool],
    place: Path,
    seen: set[Path],
) -> Iterator[tuple[ast.Module, str]]:
    """Yield files and what they import, each as its syntax tree and its name in messages."""
    while unread:
        source, path, display_name = unread.pop(0)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            # Skip a file that is not valid Python: if the program imports the file, Python reports
            # the error.
            continue
        yield tree, display_name
        for file in _find_imported_files(tree, path, directories) if path else ():
            if file not in seen and is_own(file):
                seen.add(file)
                unread.append((file.read_bytes(), file, os.path.relpath(file, place)))


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
