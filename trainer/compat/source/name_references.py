"""What a source names of TensorFlow, found by reading it. No TensorFlow here."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_ROOTS = ("tensorflow", "tensorflow_estimator")
_V1 = "tensorflow.compat.v1"


@dataclass(frozen=True, order=True)
class NameReference:
    """One place where a program names something of TensorFlow.

    Attributes:
      line: of the source, from 1.
      name: the whole name, whatever the program calls its parts: "tensorflow.train.Saver".
      written_name: as the program writes it: "tf.train.Saver"; for an import, the name itself.
      is_import: whether it is an import that names it.
    """

    line: int
    name: str
    written_name: str
    is_import: bool = False


def find_name_references(tree: ast.Module) -> list[NameReference]:
    """Everything of TensorFlow that a source names, in the order of its lines.

    A name that the source binds to modules of both versions, as programs do that try one import
    and then another, counts as the first one's.
    """
    imports = sorted(_imports(tree), key=lambda each: each[0].line)
    bound: dict[str, str] = {}
    for use, name in imports:
        bound.setdefault(name, use.name)
    _follow_assignments(tree, bound)
    found = {use for use, _ in imports}
    found.update(_attributes(tree, bound))
    return sorted(found)


def _imports(tree: ast.Module) -> Iterator[tuple[NameReference, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] in _ROOTS:
                    use = NameReference(node.lineno, each.name, each.name, is_import=True)
                    yield (use, each.asname) if each.asname else (_root(use), _root(use).name)
                    if not each.asname and "." in each.name:
                        yield use, f"import {each.name}"
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = str(node.module)
            for each in node.names if module.split(".")[0] in _ROOTS else ():
                name = module if each.name == "*" else f"{module}.{each.name}"
                yield (
                    NameReference(node.lineno, name, name, is_import=True),
                    each.asname or each.name,
                )


def _root(use: NameReference) -> NameReference:
    root = use.name.split(".")[0]
    return NameReference(use.line, root, root, is_import=True)


def _follow_assignments(tree: ast.Module, bound: dict[str, str]) -> None:
    # `flags = tf.flags`, at any depth, as often as one such name leads to the next.
    assignments = [
        (node.targets[0].id, chain)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and (chain := _chain(node.value))
    ]
    for target, chain in assignments:
        root = bound.get(chain[0])
        if root is None or len(chain) == 1:
            continue
        name = ".".join([root, *chain[1:]])
        if name == _V1:
            # `tf = tf.compat.v1`
            bound[target] = name
        else:
            bound.setdefault(target, name)


def _attributes(tree: ast.Module, bound: dict[str, str]) -> Iterator[NameReference]:
    inner: set[ast.AST] = set()
    # From the outside in: the chain a.b.c is one use, not three.
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            inner.add(node.value)
            chain = _chain(node)
            if node not in inner and chain and chain[0] in bound:
                name = ".".join([bound[chain[0]], *chain[1:]])
                yield NameReference(_line(node), name, ".".join(chain))


def _line(node: ast.Attribute) -> int:
    return node.end_lineno or node.lineno


def _chain(node: ast.AST) -> list[str]:
    """["tf", "train", "Saver"] of that expression; nothing where it is another one."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []
