"""A program that tries whether the TensorFlow names in other programs can be resolved.

$ tpuserve run --tf1 name_resolution.py NAMES.json
reads {file: [name as written, ...]} and prints {file: {name: error or null}}.
"""

import ast
import json
import sys
from collections.abc import Iterator
from typing import Any


def _binding(tree: ast.Module) -> Iterator[str]:
    """Yield the statements that bind names: absolute imports, and assignments of dotted names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level or isinstance(node, ast.Import):
            for alias in node.names:
                yield ast.unparse(_alone(node, alias))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            yield ast.unparse(node)


def _alone(node: ast.Import | ast.ImportFrom, name: ast.alias) -> ast.stmt:
    if isinstance(node, ast.Import):
        return ast.Import([name])
    return ast.ImportFrom(node.module, [name], 0)


def _attempt(statement: str, names: dict[str, Any]) -> str | None:
    try:
        exec(statement, names)
    except (ImportError, AttributeError, NameError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _resolve(file: str, written: list[str]) -> dict[str, str | None]:
    names: dict[str, Any] = {"__name__": "__main__"}
    with open(file) as source:
        for statement in _binding(ast.parse(source.read())):
            if "__future__" not in statement:
                _attempt(statement, names)
    errors = {}
    for name in written:
        module, _, last = name.rpartition(".")
        is_import = name.split(".")[0] in ("tensorflow", "tensorflow_estimator")
        statement = f"from {module} import {last}" if module else f"import {last}"
        errors[name] = _attempt(statement if is_import else name, names)
    return errors


with open(sys.argv[1]) as _names_file:
    print(
        json.dumps({file: _resolve(file, names) for file, names in json.load(_names_file).items()})
    )
