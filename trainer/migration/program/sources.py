"""The files of a program, parsed: the script, and the modules beside it that it imports."""

import ast
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# What Python 3 says of what only Python 2 understands.
_PYTHON_2 = (
    "Missing parentheses in call to",
    "multiple exception types must be parenthesized",
    "leading zeros in decimal integer literals",
    "inconsistent use of tabs",
)


@dataclass(frozen=True)
class Problem:
    """Why a file cannot be read.

    Attributes:
      file: as it is shown.
      line: from 1; None where it is none of its lines.
      says: what is wrong, and what to do.
    """

    file: str
    line: int | None
    says: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.says}"


@dataclass(frozen=True)
class Source:
    """A file of a program.

    Attributes:
      file: as it is shown.
      path: of the file.
      tree: what it says; empty where it cannot be read.
      problem: why it cannot; None where it can.
    """

    file: str
    path: Path
    tree: ast.Module
    problem: Problem | None = None


def read(path: Path, file: str) -> Source:
    """One file; if it is no Python, that is its problem."""
    try:
        content = path.read_bytes()
    except OSError as error:
        problem = Problem(file, None, f"it cannot be read: {error.strerror}.")
        return Source(file, path, _empty(), problem)
    try:
        return Source(file, path, _parsed(content))
    except SyntaxError as error:
        return Source(file, path, _empty(), Problem(file, error.lineno, _explained(error)))
    except (ValueError, RecursionError, MemoryError) as error:
        problem = Problem(file, None, f"it is not the source of a Python program: {error}.")
        return Source(file, path, _empty(), problem)


def program(script: Path, directories: Sequence[Path]) -> list[Source]:
    """The script, and the modules of the program that it leads to.

    Args:
      script: the main file.
      directories: where modules count as the program's, and below; none to read the script alone.
    """
    places = [each.resolve() for each in directories]
    found = {script.resolve(): read(script, str(script))}
    unfollowed = list(found) if places else []
    while unfollowed:
        importer = unfollowed.pop(0)
        for path in _imported(found[importer].tree, importer, places):
            file = path.resolve()
            if file not in found:
                found[file] = read(file, _shown(file, script))
                unfollowed.append(file)
    return list(found.values())


def _shown(file: Path, script: Path) -> str:
    """A file as the script is shown: from the working directory, or whole."""
    if script.is_absolute():
        return str(file)
    return os.path.relpath(file)


def _parsed(content: bytes) -> ast.Module:
    with warnings.catch_warnings():
        # "\d" in a string of its own is nothing that we report.
        warnings.simplefilter("ignore")
        return ast.parse(content)


def _empty() -> ast.Module:
    return ast.Module(body=[], type_ignores=[])


def _explained(error: SyntaxError) -> str:
    if any(each in error.msg for each in _PYTHON_2):
        return (
            f"it is Python 2 ({error.msg}). Convert it first: Python 3.10 to 3.12 bring "
            f"`2to3 -w FILE`."
        )
    return f"it is no Python 3: {error.msg}. Correct it first."


def _imported(tree: ast.Module, importer: Path, places: Sequence[Path]) -> Iterator[Path]:
    """The files at or below some places that a module imports, and the packages they are in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                for place in places:
                    yield from _files(place, each.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.level <= len(importer.parents):
            starts = [importer.parents[node.level - 1]] if node.level else places
            module = node.module.split(".") if node.module else []
            for place in starts:
                for each in node.names:
                    yield from _files(place, [*module, each.name])


def _files(place: Path, parts: list[str]) -> Iterator[Path]:
    for part in parts:
        place = place / part
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file
                break
