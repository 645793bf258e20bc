"""Reads and parses the files of a program: its script, and its own modules that are imported."""

import ast
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source import name_references
from trainer.compat.source.paths import is_library_file

# If one of these texts is part of the error message of Python 3's parser, the file is written in
# Python 2.
_PYTHON_2 = (
    "Missing parentheses in call to",
    "multiple exception types must be parenthesized",
    "leading zeros in decimal integer literals",
    "inconsistent use of tabs",
)


@dataclass(frozen=True)
class Problem:
    """The reason why a file of a program cannot be read or parsed.

    Attributes:
      line: the number of the line with the error, from 1; None if the error concerns the whole
        file.
    """

    file: str
    line: int | None
    says: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.says}"


@dataclass(frozen=True)
class SourceFile:
    """A parsed file of a program.

    Attributes:
      tree: the syntax tree; empty if the file cannot be parsed.
      problem: why the file cannot be read or parsed; None if there is no problem.
    """

    file: str
    path: Path
    tree: ast.Module
    problem: Problem | None = None


def read_source(path: Path, file: str) -> SourceFile:
    """Read and parse a file of a program.

    An error is not raised but stored in the attribute `problem` of the result.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        problem = Problem(file, None, f"it cannot be read: {error.strerror}.")
        return SourceFile(file, path, _empty_module(), problem)
    try:
        return SourceFile(file, path, _parse_source(content))
    except SyntaxError as error:
        return SourceFile(
            file, path, _empty_module(), Problem(file, error.lineno, _explain_syntax_error(error))
        )
    except (ValueError, RecursionError, MemoryError) as error:
        problem = Problem(file, None, f"it is not the source of a Python program: {error}.")
        return SourceFile(file, path, _empty_module(), problem)


def read_program(script: Path, directories: Sequence[Path]) -> list[SourceFile]:
    """Read a script and the program's modules that the script imports, directly or indirectly.

    Args:
      directories: the directories whose modules belong to the program; empty to read only the
        script.
    """
    roots = [directory.resolve() for directory in directories]
    is_library = is_library_file(script.resolve())
    return _read_imported(
        [read_source(script, str(script))],
        roots,
        lambda file: bool(roots) and (is_library or not is_library_file(file)),
        lambda file: _format_path(file, script),
    )


def read_package(
    files: Sequence[Path], place: Path, skip: Callable[[ast.Module], Collection[int]]
) -> list[SourceFile]:
    """Read modules of an installed package, and the modules of the package that these import.

    Args:
      place: the directory that contains the package. The names of the files are relative to it.
      skip: returns the lines of a module whose imports are not followed.
    """
    roots = {file.relative_to(place).parts[0] for file in files}
    start = [read_source(file, str(file.relative_to(place))) for file in files]
    return _read_imported(
        start,
        [place],
        lambda file: file.is_relative_to(place) and file.relative_to(place).parts[0] in roots,
        lambda file: str(file.relative_to(place)),
        skip,
    )


def _read_imported(
    start: Sequence[SourceFile],
    roots: Sequence[Path],
    is_wanted: Callable[[Path], bool],
    format_path: Callable[[Path], str],
    skip: Callable[[ast.Module], Collection[int]] = lambda _: (),
) -> list[SourceFile]:
    """Return some source files, followed by those that they import directly or indirectly."""
    files = {source.path.resolve(): source for source in start}
    pending = list(files)
    while pending:
        importer = pending.pop(0)
        tree = files[importer].tree
        for path in find_imported_files(tree, importer, roots, skip(tree)):
            file = path.resolve()
            if file not in files and is_wanted(file):
                files[file] = read_source(file, format_path(file))
                pending.append(file)
    return list(files.values())


def _format_path(file: Path, script: Path) -> str:
    if script.is_absolute():
        return str(file)
    return os.path.relpath(file)


def _parse_source(content: bytes) -> ast.Module:
    with warnings.catch_warnings():
        # Suppress Python's warnings about the program's source, such as about the invalid escape
        # "\d", because they would be printed between the lines of the report.
        warnings.simplefilter("ignore")
        return ast.parse(content)


def _empty_module() -> ast.Module:
    return ast.Module(body=[], type_ignores=[])


def _explain_syntax_error(error: SyntaxError) -> str:
    if any(message in error.msg for message in _PYTHON_2):
        return (
            f"it is Python 2 ({error.msg}). Convert it first: Python 3.10 to 3.12 bring "
            f"`2to3 -w FILE`."
        )
    return f"it is not valid Python 3: {error.msg}. Correct it first."


def find_imported_files(
    tree: ast.Module, importer: Path, roots: Sequence[Path], skipped_lines: Collection[int] = ()
) -> Iterator[Path]:
    """Yield the files of the modules and packages that a module imports from some directories."""
    for node in name_references.walk(tree):
        if getattr(node, "lineno", 0) in skipped_lines:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                for root in roots:
                    yield from module_files(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.level <= len(importer.parents):
            starts = [importer.parents[node.level - 1]] if node.level else roots
            module = node.module.split(".") if node.module else []
            for start in starts:
                for alias in node.names:
                    yield from module_files(start, [*module, alias.name])


def module_files(place: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files that an import of a module runs: those of its packages, and its own."""
    for part in parts:
        place = place / part
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file
                break
