"""Finds modules that are not installed, and names that Python or NumPy have removed."""

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from trainer.compat import removed_names
from trainer.compat.source import name_references
from trainer.compat.source.name_references import find_name_references
from trainer.migration.names.classification import NameClassification, NameStatus

# Modules that a program has without an installation, or that another check looks for.
_PRESENT = ("__main__", "tensorflow", "tensorflow_estimator")

# Maps the name of a module of Python 2 to its name in Python 3.
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


def find_missing(
    tree: ast.Module, directories: tuple[Path, ...]
) -> Iterator[tuple[int, str, NameClassification]]:
    """Find imports of modules that are not installed, and names that only Python 2 has.

    Imports whose failure the program handles are left out.
    """
    optional = set(name_references.find_optional_nodes(tree))
    for node in name_references.walk(tree):
        if node in optional or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name in _imported_modules(node):
            status = _classify_module(name.split(".")[0], directories)
            if status is not None:
                yield node.lineno, name, status
    yield from _python_2_names(tree)


def find_removed_names(tree: ast.Module) -> Iterator[tuple[int, str, str, NameClassification]]:
    """Find the names that Python and NumPy have removed, such as np.object.

    Yields:
      Line number, name as written, full name and classification of each such name. A name that has
      an exact replacement is classified as supplied, because `tpuserve run` adds it.
    """
    guarded = name_references.find_guarded_names(tree)
    optional_lines = name_references.find_optional_import_lines(tree)
    for use in find_name_references(tree, tuple(removed_names.MODULES)):
        supplied = removed_names.find_supplied(use.name)
        if supplied is not None:
            yield (
                use.line,
                use.written_name,
                use.name,
                NameClassification(NameStatus.SUPPLIED, supplied),
            )
            continue
        advice = removed_names.find_advice(use.name)
        is_optional = use.line in optional_lines or (use.line, use.written_name) in guarded
        if advice is not None and not is_optional:
            yield use.line, use.written_name, use.name, NameClassification(NameStatus.GONE, advice)


def _imported_modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if node.module and not node.level else []


def _classify_module(name: str, directories: tuple[Path, ...]) -> NameClassification | None:
    if name in sys.stdlib_module_names or name in _PRESENT or _is_installed(name):
        return None
    for directory in directories:
        if (directory / f"{name}.py").is_file() or (directory / name).is_dir():
            return None
    if name in removed_names.REMOVED_MODULES:
        return NameClassification(NameStatus.GONE, removed_names.REMOVED_MODULES[name])
    if name in _PYTHON_2_MODULES:
        return NameClassification(
            NameStatus.GONE, f"Python 2 had it; now it is {_PYTHON_2_MODULES[name]}."
        )
    parent = _find_in_parents(name, directories)
    if parent is not None:
        return NameClassification(
            NameStatus.MISSING, f"It is in {parent}: set PYTHONPATH={parent}."
        )
    return NameClassification(
        NameStatus.MISSING, "It is not installed, and not beside the program."
    )


@functools.cache
def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _find_in_parents(name: str, directories: tuple[Path, ...]) -> Path | None:
    """Return the nearest parent of the script's directory that contains a module."""
    for directory in directories[:1]:
        for parent in directory.resolve().parents:
            if (parent / name / "__init__.py").is_file() or (parent / f"{name}.py").is_file():
                return parent
    return None


def _python_2_names(tree: ast.Module) -> Iterator[tuple[int, str, NameClassification]]:
    names = [node for node in name_references.walk(tree) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    bound |= {node.arg for node in name_references.walk(tree) if isinstance(node, ast.arg)}
    bound |= {
        alias.asname or alias.name
        for node in name_references.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    optional = set(_python_2_only_nodes(tree))
    for name in names:
        if name.id in _PYTHON_2_NAMES and name.id not in bound and name not in optional:
            now = _PYTHON_2_NAMES[name.id]
            yield (
                name.lineno,
                name.id,
                NameClassification(NameStatus.GONE, f"Python 2 had it; now it is {now}."),
            )


def _python_2_only_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    for node in name_references.walk(tree):
        if isinstance(node, ast.If | ast.IfExp) and _tests_python_version(node.test):
            yield from ast.walk(node)
        elif isinstance(node, ast.Try):
            for statement in node.body:
                yield from ast.walk(statement)


def _tests_python_version(test: ast.expr) -> bool:
    attributes = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    return bool(attributes & {"PY2", "PY3", "version_info", "major"})
