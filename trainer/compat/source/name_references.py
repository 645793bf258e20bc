"""Finds the TensorFlow symbols that a source file uses, without importing TensorFlow."""

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_EXITS = {"_exit", "exit", "quit"}
_BROAD_EXCEPTIONS = {"BaseException", "Exception"}
_IMPORT_ERRORS = {"Exception", "ImportError", "ModuleNotFoundError"}


@functools.lru_cache(maxsize=512)
def walk(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return the nodes that ast.walk yields, which takes time only at the first call for a tree."""
    return tuple(ast.walk(tree))


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name, such as "FLAGS" for flags.FLAGS; "" for no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def ends_program(statement: ast.AST) -> bool:
    """Return whether a statement raises an exception or calls a function such as sys.exit."""
    match statement:
        case ast.Expr(value=ast.Call(func=function)):
            return last_name(function) in _EXITS
    return isinstance(statement, ast.Raise)


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
    for node in walk(tree):
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
    if not _goes_on(handler):
        return False
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
    """Yield the syntax nodes in the places where a program handles the failure of an import.

    These places are a try that catches ImportError, with its handlers; a `with` statement that
    suppresses ImportError or makes imports lazy; and an `if TYPE_CHECKING`, which never runs.
    """
    for node in walk(tree):
        parts: Sequence[ast.AST] = ()
        match node:
            case ast.Try(handlers=handlers) if any(map(_catches_import_error, handlers)):
                parts = (*node.body, *handlers, *node.orelse)
            case ast.With(items=items) if any(map(_allows_missing_modules, items)):
                parts = node.body
            case ast.If(test=test) if last_name(test) == "TYPE_CHECKING":
                parts = node.body
        for part in parts:
            yield from ast.walk(part)


def find_optional_import_lines(tree: ast.Module) -> set[int]:
    """Return the lines of the imports among the nodes of `find_optional_nodes`."""
    return {
        node.lineno
        for node in find_optional_nodes(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    return _goes_on(handler) and (handler.type is None or _names_import_error(handler.type))


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Return whether the program goes on after a handler of an exception."""
    return not ends_program(handler.body[-1])


def _names_import_error(node: ast.AST) -> bool:
    return any(last_name(name) in _IMPORT_ERRORS for name in ast.walk(node))


def _allows_missing_modules(item: ast.withitem) -> bool:
    """Return whether a context is contextlib.suppress(ImportError) or etils.epy.lazy_imports()."""
    call = item.context_expr
    if not isinstance(call, ast.Call):
        return False
    name = last_name(call.func)
    return "lazy" in name or (name == "suppress" and any(map(_names_import_error, call.args)))


_ROOTS = ("tensorflow", "tensorflow_estimator")
_V1 = "tensorflow.compat.v1"
# Matches the redundant parts of a name such as tensorflow.compat.v2.compat.v1.X: tf.compat.v1 and
# tf.compat.v2 each contain a further compat.v1 and compat.v2.
_NESTED_API = re.compile(r"^tensorflow\.(?:compat\.v[12]\.)+(?=compat\.v[12]\b)")


@dataclass(frozen=True, order=True)
class NameReference:
    """One place where a program uses a TensorFlow symbol.

    Attributes:
      line: the line number in the source, from 1.
      name: the full name of the symbol, such as "tensorflow.train.Saver".
      written_name: the name as the program writes it, such as "tf.train.Saver". In an import
        statement it equals `name`.
    """

    line: int
    name: str
    written_name: str
    is_import: bool = False


def find_name_references(tree: ast.Module, packages: Sequence[str] = _ROOTS) -> list[NameReference]:
    """Return the places where a source file uses symbols of some packages, sorted by line.

    Some programs try one import and fall back to another, so one variable may stand for modules of
    both TensorFlow versions.

    Args:
      packages: the names of the packages; those of TensorFlow by default.
    """
    imports = sorted(_find_imports(tree, packages), key=lambda pair: pair[0].line)
    bound_names: dict[str, str] = {}
    for reference, variable in imports:
        bound_names.setdefault(variable, reference.name)
    _follow_assignments(tree, bound_names)
    references = {reference for reference, _ in imports}
    references.update(_find_attributes(tree, bound_names))
    return sorted(map(_shorten_api_path, references))


def _shorten_api_path(reference: NameReference) -> NameReference:
    name = _NESTED_API.sub("tensorflow.", reference.name)
    return reference if name == reference.name else dataclasses.replace(reference, name=name)


def _find_imports(tree: ast.Module, packages: Sequence[str]) -> Iterator[tuple[NameReference, str]]:
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in packages:
                    yield from _find_module_import(node.lineno, alias)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = str(node.module)
            for alias in node.names if module.split(".")[0] in packages else ():
                name = module if alias.name == "*" else f"{module}.{alias.name}"
                reference = NameReference(node.lineno, name, name, is_import=True)
                yield reference, alias.asname or alias.name


def _find_module_import(line: int, alias: ast.alias) -> Iterator[tuple[NameReference, str]]:
    reference = NameReference(line, alias.name, alias.name, is_import=True)
    if alias.asname:
        yield reference, alias.asname
        return
    root = alias.name.split(".")[0]
    yield NameReference(line, root, root, is_import=True), root
    if root != alias.name:
        # `import a.b` assigns only the variable `a`, so no variable stands for a.b. In place of the
        # name of a variable, yield a text with a space, which is not the name of any variable.
        yield reference, f"import {alias.name}"


def _follow_assignments(tree: ast.Module, bound_names: dict[str, str]) -> None:
    """Find variables to which the source assigns a TensorFlow symbol, as in `flags = tf.flags`."""
    assignments = [
        (node.targets[0].id, chain)
        for node in walk(tree)
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and (chain := _split_attribute_chain(node.value))
    ]
    for target, chain in assignments:
        root = bound_names.get(chain[0])
        if root is None or len(chain) == 1:
            continue
        name = ".".join([root, *chain[1:]])
        if name == _V1:
            # Let an assignment of tf.compat.v1 override the meaning that the variable has by an
            # import: after `tf = tf.compat.v1`, `tf` stands for tensorflow.compat.v1.
            bound_names[target] = name
        else:
            bound_names.setdefault(target, name)


def _find_attributes(tree: ast.Module, bound_names: dict[str, str]) -> Iterator[NameReference]:
    """Yield the uses of TensorFlow symbols in expressions such as `tf.train.Saver`."""
    inner_nodes: set[ast.AST] = set()
    # Yield a reference for the whole of a.b.c, and none for its part a.b. ast.walk visits a.b.c
    # first, so a.b is in `inner_nodes` by the time the loop reaches a.b.
    for node in walk(tree):
        if isinstance(node, ast.Attribute):
            inner_nodes.add(node.value)
            chain = _split_attribute_chain(node)
            if node not in inner_nodes and chain and chain[0] in bound_names:
                name = ".".join([bound_names[chain[0]], *chain[1:]])
                yield NameReference(node.end_lineno or node.lineno, name, ".".join(chain))


def _split_attribute_chain(node: ast.AST) -> list[str]:
    """Return the parts of a dotted name, such as ["tf", "train", "Saver"] for `tf.train.Saver`."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []
