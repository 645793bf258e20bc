"""The parsed files of a program: the script, and its own modules that it imports."""

import ast
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source.paths import is_library_file

# Parts of Python 3's error messages that show that a file is written in Python 2.
_PYTHON_2 = (
    "Missing parentheses in call to",
    "multiple exception types must be parenthesized",
    "leading zeros in decimal integer literals",
    "inconsistent use of tabs",
)


@dataclass(frozen=True)
class Problem:
    """The reason why a file cannot be read.

    Attributes:
      file: the path of the file as the report shows it.
      line: the line number, from 1; None if the problem has no line.
      says: a description of the problem and its solution.
    """

    file: str
    line: int | None
    says: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.says}"


@dataclass(frozen=True)
class SourceFile:
    """A file of a program.

    Attributes:
      file: the path of the file as the report shows it.
      path: the path of the file.
      tree: the syntax tree; empty if the file cannot be read.
      problem: why the file cannot be read; None if the file can be read.
    """

    file: str
    path: Path
    tree: ast.Module
    problem: Problem | None = None


def read_source(path: Path, file: str) -> SourceFile:
    """Read and parse a file; an error is stored in `problem` of the result."""
    try:
        content = path.read_bytes()
    except OSError as error:
        problem = Problem(file, None, f"it cannot be read: {error.strerror}.")
        return SourceFile(file, path, _empty_module(), problem)
    try:
        return SourceFile(file, path, _parse(content))
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
    """Read the script and, transitively, the program's own modules that it imports.

    Args:
      script: the main file.
      directories: the directories whose modules belong to the program; empty to read the script
        alone.
      within: the only directory whose files are read beside the script; None for all.
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
    """Format a path: absolute if the script's path is, else relative to the working directory."""
    if script.is_absolute():
        return str(file)
    return os.path.relpath(file)


def _parse(content: bytes) -> ast.Module:
    with warnings.catch_warnings():
        # Suppress Python's warnings about invalid escapes, such as "\d": the user wants to read
        # the report and not the warnings.
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
    """Yield the files that a module imports, with the __init__ files of their packages.

    Args:
      tree: the parsed module.
      importer: the path of the module, to which relative imports refer.
      roots: the directories in which to look up absolute imports.
    """
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
