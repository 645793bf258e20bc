"""Finds names and modules that a program uses only if they exist: in a try, or behind hasattr."""

import ast
from collections.abc import Iterator

_BROAD_EXCEPTIONS = {"BaseException", "Exception"}
_IMPORT_ERRORS = {"Exception", "ImportError", "ModuleNotFoundError"}


def find_guarded_names(tree: ast.Module) -> set[tuple[int, str]]:
    """Find the attributes of modules that a program uses only where it handles their absence.

    Such an attribute is in the body of a try that catches AttributeError, or in an if whose
    condition tests the attribute by hasattr.

    Returns:
      (line number, name as written) for each attribute, such as (12, "tf.train.Saver").
    """
    return {
        (node.end_lineno or node.lineno, ast.unparse(node))
        for node in _walk_guarded(tree)
        if isinstance(node, ast.Attribute)
    }


def _walk_guarded(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            _catches_attribute_error(handler, node) for handler in node.handlers
        ):
            for statement in node.body:
                yield from ast.walk(statement)
        elif isinstance(node, ast.If | ast.IfExp):
            tested = set(_names_tested_by_hasattr(node.test))
            for inner in ast.walk(node) if tested else ():
                if isinstance(inner, ast.Attribute) and not tested.isdisjoint(_prefixes(inner)):
                    yield inner


def _catches_attribute_error(handler: ast.ExceptHandler, node: ast.Try) -> bool:
    nodes = ast.walk(handler.type) if handler.type is not None else ()
    caught = {name.id for name in nodes if isinstance(name, ast.Name)}
    is_broad = handler.type is None or not caught.isdisjoint(_BROAD_EXCEPTIONS)
    return "AttributeError" in caught or (is_broad and len(node.body) == 1)


def _names_tested_by_hasattr(test: ast.expr) -> Iterator[str]:
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Name(id="hasattr"), args=[where, ast.Constant(value=str(name))]):
                yield f"{ast.unparse(where)}.{name}"


def _prefixes(node: ast.Attribute) -> Iterator[str]:
    """Yield a dotted name and its prefixes, such as "tf.train.Saver" and "tf.train"."""
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        yield ast.unparse(value)
        value = value.value


def find_optional_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the syntax nodes in the body and the handlers of each try that catches ImportError.

    The program handles the failure of an import in these places.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            _catches_import_error(handler) for handler in node.handlers
        ):
            for part in (*node.body, *node.handlers):
                yield from ast.walk(part)


def find_optional_import_lines(tree: ast.Module) -> set[int]:
    """Return the lines of imports in the body or a handler of a try that catches ImportError."""
    return {
        node.lineno
        for node in find_optional_nodes(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(
        isinstance(name, ast.Name) and name.id in _IMPORT_ERRORS for name in ast.walk(handler.type)
    )
