"""Finds local variables that have the name of an imported TensorFlow module."""

import ast
from collections.abc import Iterator

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def find_shadowed_names(tree: ast.Module) -> set[tuple[int, str]]:
    """Find attributes of local variables, to exclude them from the TensorFlow names of the file.

    For example, after `layers = []` in a function, `layers.append` is not a name of tf.layers, even
    if the file imports that module as `layers`.

    Returns:
      (line number, name as written) for each use of an attribute, such as (12, "layers.append").
    """
    shadowed = set()
    for function in ast.walk(tree):
        if isinstance(function, _Function):
            local_names = set(_local_names(function))
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and _root_name(node) in local_names:
                    shadowed.add((node.end_lineno or node.lineno, ast.unparse(node)))
    return shadowed


def _local_names(function: _Function) -> Iterator[str]:
    """Yield the names of a function's parameters and local variables."""
    nodes = list(ast.walk(function))
    aliases = {
        target
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        for target in node.targets
    }
    global_names = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg
        elif (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node not in aliases
            and node.id not in global_names
        ):
            yield node.id


def _root_name(node: ast.Attribute) -> str | None:
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None
