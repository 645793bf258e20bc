"""Finds the lines of an old program that do not run if the user starts it as the report says.

The report of `tpuserve migrate` contains a command that runs the program. Missing names in lines
that do not run under this command are not counted as errors.
"""

import ast
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from tpuserve.graph.traversal import find_reachable
from trainer.migration.program.launch_command import ProgramFlag
from trainer.migration.program.sources import SourceFile

_FLAG_OBJECTS = {"FLAGS", "args", "opts", "options"}
_VERSION_CLASSES = {"LooseVersion", "StrictVersion", "Version", "parse", "parse_version"}
_MAIN_CALLS = {"main", "run"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _Unknown(Exception):
    """Raised if the value of an expression cannot be computed without running the program."""


def find_unreached_lines(
    sources: Sequence[SourceFile], flags: Iterable[ProgramFlag]
) -> list[set[int]]:
    """Find lines under false conditions and lines of unused functions, which do not run.

    A condition is known to be false if it depends only on constants, the versions of TensorFlow and
    Python, and the default values of flags.

    Args:
      flags: the command-line flags that keep their default values.
    """
    defaults = {flag.name.replace("-", "_"): flag for flag in flags}
    dead: list[set[int]] = []
    for index, source in enumerate(sources):
        names = {"__name__": "__main__" if index == 0 else "module"}
        dead.append(set(_lines_behind_false_conditions(source.tree, names, defaults)))
    if sources and _has_main_part(sources[0].tree):
        for lines, unused in zip(dead, _lines_of_unused_functions(sources, dead), strict=True):
            lines |= unused
    return dead


def _has_main_part(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.Compare) and ast.unparse(node.left) == "__name__")
        or (isinstance(node, ast.Call) and _last_name(node.func) in _MAIN_CALLS)
        for statement in tree.body
        if not isinstance(statement, _Definition)
        for node in ast.walk(statement)
    )


def _lines_behind_false_conditions(
    tree: ast.Module, names: Mapping[str, str], flags: Mapping[str, ProgramFlag]
) -> Iterator[int]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.If):
            continue
        try:
            value = bool(_evaluate(node.test, names, flags))
        except (_Unknown, TypeError, ValueError, IndexError, AttributeError):
            continue
        yield from _lines(node.orelse if value else node.body)


def _lines(statements: Iterable[ast.stmt]) -> Iterator[int]:
    for statement in statements:
        yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _evaluate(node: ast.expr, names: Mapping[str, str], flags: Mapping[str, ProgramFlag]) -> Any:
    """Compute the value of an expression of the program."""

    def compute(inner: ast.expr) -> Any:
        return _evaluate(inner, names, flags)

    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return tuple(map(compute, elements))
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not compute(operand)
        case ast.BoolOp(op=operator, values=values):
            return _evaluate_bool(isinstance(operator, ast.And), values, names, flags)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _compare(operator, compute(left), compute(right))
        case ast.Attribute():
            return _evaluate_attribute(node, flags)
        case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=upper, step=None)):
            return compute(value)[: compute(upper) if upper is not None else None]
        case ast.Subscript(value=value, slice=index):
            return compute(value)[compute(index)]
        case ast.Call(func=ast.Name(id=("int" | "float") as name), args=[argument]):
            return {"int": int, "float": float}[name](compute(argument))
        case ast.Call(func=ast.Attribute(value=value, attr=("startswith" | "split") as name)):
            return getattr(compute(value), name)(*map(compute, node.args))
        case ast.Call(args=[argument]) if _last_name(node.func) in _VERSION_CLASSES:
            return tuple(int(number) for number in re.findall(r"\d+", compute(argument))[:3])
    raise _Unknown


def _evaluate_bool(
    is_and: bool,
    values: Sequence[ast.expr],
    names: Mapping[str, str],
    flags: Mapping[str, ProgramFlag],
) -> bool:
    """Compute `a and b` or `a or b`; one operand may decide the result if the other is unknown."""
    is_unknown = False
    for value in values:
        try:
            if bool(_evaluate(value, names, flags)) is not is_and:
                return not is_and
        except _Unknown:
            is_unknown = True
    if is_unknown:
        raise _Unknown
    return is_and


def _compare(operator: ast.cmpop, left: Any, right: Any) -> bool:
    match operator:
        case ast.Eq():
            return bool(left == right)
        case ast.NotEq():
            return bool(left != right)
        case ast.Lt():
            return bool(left < right)
        case ast.LtE():
            return bool(left <= right)
        case ast.Gt():
            return bool(left > right)
        case ast.GtE():
            return bool(left >= right)
        case ast.Is():
            return left is right
        case ast.IsNot():
            return left is not right
    raise _Unknown


def _evaluate_attribute(node: ast.Attribute, flags: Mapping[str, ProgramFlag]) -> Any:
    path = ast.unparse(node)
    if path in ("tf.__version__", "tensorflow.__version__", "tf.VERSION"):
        try:
            return metadata.version("tensorflow")
        except metadata.PackageNotFoundError:
            raise _Unknown from None
    known = {
        "six.PY2": False,
        "six.PY3": True,
        "sys.version_info": tuple(sys.version_info[:3]),
        "sys.version_info.major": sys.version_info.major,
    }
    if path in known:
        return known[path]
    flag = flags.get(node.attr)
    if flag is not None and _last_name(node.value) in _FLAG_OBJECTS and flag.has_default:
        return flag.default
    raise _Unknown


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _lines_of_unused_functions(
    sources: Sequence[SourceFile], dead: Sequence[set[int]]
) -> list[set[int]]:
    """Find the lines of functions that the program does not use."""
    bodies: dict[str, list[tuple[int, _Function, set[str]]]] = {}
    used: set[str] = set()
    for index, source in enumerate(sources):
        for definition, owner in _find_functions(source.tree):
            if definition.lineno not in dead[index]:
                names = set(_names_in(definition.body, dead[index]))
                bodies.setdefault(owner, []).append((index, definition, names))
        used |= set(_names_outside_of_functions(source.tree, dead[index]))
    reached = find_reachable(
        used,
        lambda owner: (
            itertools.chain.from_iterable(names for _, _, names in bodies[owner])
            if owner in bodies
            else None
        ),
    )
    unused: list[set[int]] = [set() for _ in sources]
    for owner, functions in bodies.items():
        for index, function, _ in functions if owner not in reached else ():
            unused[index] |= set(_lines(function.body))
    return unused


def _find_functions(tree: ast.Module) -> Iterator[tuple[_Function, str]]:
    for statement in _statements_of_module(tree.body):
        if isinstance(statement, _Function) and not statement.decorator_list:
            yield statement, statement.name
        elif isinstance(statement, ast.ClassDef) and not statement.decorator_list:
            for member in statement.body:
                if isinstance(member, _Function):
                    yield member, statement.name


def _statements_of_module(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module outside of functions and classes, also in `if` and `try`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            parts = [*statement.body, *statement.orelse, *getattr(statement, "finalbody", [])]
            for handler in getattr(statement, "handlers", []):
                parts += handler.body
            yield from _statements_of_module(parts)


def _names_outside_of_functions(tree: ast.Module, dead: set[int]) -> Iterator[str]:
    left_out = {id(node) for function, _ in _find_functions(tree) for node in function.body}

    def visit(node: ast.AST) -> Iterator[str]:
        if id(node) in left_out:
            return
        yield from _names_of_node(node, dead)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    yield from visit(tree)


def _names_in(statements: Iterable[ast.stmt], dead: set[int]) -> Iterator[str]:
    for statement in statements:
        for node in ast.walk(statement):
            yield from _names_of_node(node, dead)


def _names_of_node(node: ast.AST, dead: set[int]) -> Iterator[str]:
    if getattr(node, "lineno", 0) in dead:
        return
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
