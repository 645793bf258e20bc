"""Modules and names that a program cannot have, though they are not TensorFlow's."""

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from trainer.migration.names.classification import Kind, Verdict

_TENSORFLOW = ("tensorflow", "tensorflow_estimator")
_IMPORT_ERRORS = {"Exception", "ImportError", "ModuleNotFoundError"}

# Of Python 2, with what has replaced them.
_PYTHON_2_MODULES = {
    "ConfigParser": "configparser",
    "HTMLParser": "html.parser",
    "Queue": "queue",
    "SocketServer": "socketserver",
    "StringIO": "io.StringIO",
    "Tkinter": "tkinter",
    "__builtin__": "builtins",
    "cPickle": "pickle",
    "cStringIO": "io.StringIO",
    "commands": "subprocess",
    "httplib": "http.client",
    "urllib2": "urllib.request",
    "urlparse": "urllib.parse",
}
_PYTHON_2_NAMES = {
    "basestring": "str",
    "long": "int",
    "raw_input": "input",
    "unicode": "str",
    "xrange": "range",
}


def missing(tree: ast.Module, directories: tuple[Path, ...]) -> Iterator[tuple[int, str, Verdict]]:
    """Modules that are not installed nor beside the program, and names that Python 2 had.

    What a program tries to import, and does without, is left out.

    Returns:
      Of each its line, name and verdict.
    """
    tried = set(_tried(tree))
    for node in ast.walk(tree):
        if node in tried or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name in _imported(node):
            verdict = _of_module(name.split(".")[0], directories)
            if verdict is not None:
                yield node.lineno, name, verdict
    yield from _of_python_2(tree)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return [node.module] if node.module and not node.level else []


def _of_module(name: str, directories: tuple[Path, ...]) -> Verdict | None:
    if name in sys.stdlib_module_names or name in _TENSORFLOW or _is_found(name):
        return None
    for each in directories:
        if (each / f"{name}.py").is_file() or (each / name).is_dir():
            return None
    if name in _PYTHON_2_MODULES:
        return Verdict(Kind.GONE, f"Python 2 had it; now it is {_PYTHON_2_MODULES[name]}.")
    above = _above(name, directories)
    if above is not None:
        return Verdict(Kind.MISSING, f"It is in {above}: set PYTHONPATH={above}.")
    return Verdict(Kind.MISSING, "It is not installed, and not beside the program.")


@functools.cache
def _is_found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _above(name: str, directories: tuple[Path, ...]) -> Path | None:
    """The directory above the program's from which a module can be imported."""
    for each in directories[:1]:
        for parent in each.resolve().parents:
            if (parent / name / "__init__.py").is_file() or (parent / f"{name}.py").is_file():
                return parent
    return None


def _tried(tree: ast.Module) -> Iterator[ast.AST]:
    """The imports that are in a try that an ImportError does not leave, and its handlers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(_catches(each) for each in node.handlers):
            for part in (*node.body, *node.handlers):
                yield from ast.walk(part)


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(
        isinstance(each, ast.Name) and each.id in _IMPORT_ERRORS for each in ast.walk(handler.type)
    )


def tried_lines(tree: ast.Module) -> set[int]:
    """The lines of imports without which a program goes on, where they fail."""
    return {each.lineno for each in _tried(tree) if isinstance(each, ast.Import | ast.ImportFrom)}


def _of_python_2(tree: ast.Module) -> Iterator[tuple[int, str, Verdict]]:
    named = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
    bound = {each.id for each in named if not isinstance(each.ctx, ast.Load)}
    bound |= {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
    bound |= {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
    }
    tried = set(_tried_names(tree))
    for each in named:
        if each.id in _PYTHON_2_NAMES and each.id not in bound and each not in tried:
            now = _PYTHON_2_NAMES[each.id]
            yield each.lineno, each.id, Verdict(Kind.GONE, f"Python 2 had it; now it is {now}.")


def _tried_names(tree: ast.Module) -> Iterator[ast.AST]:
    """What stands where Python 2 alone gets: under `sys.version_info`, `six.PY2`, and in a try."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp) and _asks_for_version(node.test):
            yield from ast.walk(node)
        elif isinstance(node, ast.Try):
            for each in node.body:
                yield from ast.walk(each)


def _asks_for_version(test: ast.expr) -> bool:
    said = {each.attr for each in ast.walk(test) if isinstance(each, ast.Attribute)}
    return bool(said & {"PY2", "PY3", "version_info", "major"})
