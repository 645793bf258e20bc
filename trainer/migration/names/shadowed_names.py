"""Names that a function has for itself, though its file calls a module of TensorFlow so."""

import ast
from collections.abc import Iterator

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def of(tree: ast.Module) -> set[tuple[int, str]]:
    """Where such names stand: their lines, and what is written there: (12, "layers.append")."""
    found = set()
    for function in ast.walk(tree):
        if isinstance(function, _Function):
            own = set(_own(function))
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and _root(node) in own:
                    found.add((node.end_lineno or node.lineno, ast.unparse(node)))
    return found


def _own(function: _Function) -> Iterator[str]:
    """The arguments of a function, and what it sets to something else than a dotted name."""
    inside = list(ast.walk(function))
    aliases = {
        target
        for node in inside
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        for target in node.targets
    }
    shared = {name for node in inside if isinstance(node, ast.Global) for name in node.names}
    for node in inside:
        if isinstance(node, ast.arg):
            yield node.arg
        elif (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node not in aliases
            and node.id not in shared
        ):
            yield node.id


def _root(node: ast.Attribute) -> str | None:
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None
