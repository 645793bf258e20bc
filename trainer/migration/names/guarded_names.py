"""Names that a program asks for before it uses them, and does without where they are not there."""

import ast
from collections.abc import Iterator

_ALL = {"BaseException", "Exception"}


def of(tree: ast.Module) -> set[tuple[int, str]]:
    """Where such names stand: their lines, and what is written there: (12, "tf.train.Saver").

    They are in the body of a try that catches an AttributeError, or in an if whose condition asks
    by hasattr. One that catches everything counts if its body is one statement: longer ones are
    for what goes wrong with files and data.
    """
    return {
        (node.end_lineno or node.lineno, ast.unparse(node))
        for node in _guarded(tree)
        if isinstance(node, ast.Attribute)
    }


def _guarded(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(_catches(each, node) for each in node.handlers):
            for each in node.body:
                yield from ast.walk(each)
        elif isinstance(node, ast.If | ast.IfExp):
            asked = set(_asked(node.test))
            for inside in ast.walk(node) if asked else ():
                if isinstance(inside, ast.Attribute) and not asked.isdisjoint(_ways(inside)):
                    yield inside


def _catches(handler: ast.ExceptHandler, node: ast.Try) -> bool:
    walked = ast.walk(handler.type) if handler.type is not None else ()
    caught = {each.id for each in walked if isinstance(each, ast.Name)}
    is_wide = handler.type is None or not caught.isdisjoint(_ALL)
    return "AttributeError" in caught or (is_wide and len(node.body) == 1)


def _asked(test: ast.expr) -> Iterator[str]:
    """The names that a condition asks for: "tf.contrib" of `hasattr(tf, "contrib")`."""
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Name(id="hasattr"), args=[where, ast.Constant(value=str(name))]):
                yield f"{ast.unparse(where)}.{name}"


def _ways(node: ast.Attribute) -> Iterator[str]:
    """What a dotted name is, and what it is an attribute of: "tf.train.Saver", "tf.train"."""
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        yield ast.unparse(value)
        value = value.value
