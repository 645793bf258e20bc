"""Reads and parses the files of a program: its script, and its own modules that are imported."""

import ast
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def read_program(
    script: Path, directories: Sequence[Path], *, within: Path | None = None
) -> list[SourceFile]:
    """Read a script and the program's modules that the script imports, directly or indirectly.

    Args:
      directories: the directories whose modules belong to the program; empty to read only the
        script.
      within: a directory; modules outside of it are not read. None for no such restriction.
    """
    roots = [directory.resolve() for directory in directories]
    files = {script.resolve(): read_source(script, str(script))}
    pending = list(files) if roots else []
    while pending:
        importer = pending.pop(0)
        for path in _imported_files(files[importer].tree, importer, roots):
            file = path.resolve()
            is_library = is_library_file(file) and not is_library_file(script.resolve())
            if file not in files and not is_library and (within is None or within in file.parents):
                files[file] = read_source(file, _format_path(file, script))
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


def _imported_files(tree: ast.Module, importer: Path, roots: Sequence[Path]) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                for root in roots:
                    yield from _module_files(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.level <= len(importer.parents):
            starts = [importer.parents[node.level - 1]] if node.level else roots
            module = node.module.split(".") if node.module else []
            for start in starts:
                for alias in node.names:
                    yield from _module_files(start, [*module, alias.name])


def _module_files(place: Path, parts: list[str]) -> Iterator[Path]:
    for part in parts:
        place = place / part
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file
                break
