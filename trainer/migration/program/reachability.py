"""Finds the lines of an old program that do not run if the user starts it as the report says.

The report of `tpuserve migrate` contains a command that runs the program. Missing names in lines
that do not run under this command are not counted as errors.
"""

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tpuserve.graph.traversal import find_reachable
from trainer.compat.source import name_references
from trainer.compat.source.name_references import last_name
from trainer.migration.program.conditions import INNER_SCOPES, Evaluator, Scope
from trainer.migration.program.sources import SourceFile, find_imported_files

_MAIN_CALLS = {"main", "run"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class UnreachedCode:
    """The parts of a source file that do not run.

    Attributes:
      names: (line number, name as written), for names in a part of a line that does not run, such
        as tf.contrib in `tf.contrib if False else None`.
    """

    lines: set[int] = field(default_factory=set)
    names: set[tuple[int, str]] = field(default_factory=set)

    def contains(self, line: int, written_name: str) -> bool:
        """Return whether a name does not run in a line."""
        return line in self.lines or (line, written_name.partition("(")[0]) in self.names


class ProgramCode:
    """The code of a program, and the values that it has without a run.

    A condition is known to be false if it depends only on constants, the versions of TensorFlow and
    Python, and the values of flags.

    Args:
      sources: the script, and the program's modules that it imports directly or indirectly.
      flags: the known values of flags, by the names of their variables.
    """

    def __init__(self, sources: Sequence[SourceFile], flags: Mapping[str, object]) -> None:
        self._sources = sources
        self._evaluator = Evaluator(flags)
        rebound = {
            node.attr
            for source in sources
            for node in name_references.walk(source.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        # For each file, its nodes with the scopes that they are in.
        self._scopes: list[Mapping[ast.AST, Scope]] = []
        for index, source in enumerate(sources):
            name = "__main__" if index == 0 else "module"
            scope = Scope(source.tree, constants={"__name__": name}, rebound=rebound)
            self._scopes.append(dict(_walk_scopes(source.tree, scope)))
            for node, around in self._scopes[-1].items():
                self._evaluator.read_node(node, around)

    def find_unreached(self, directories: Sequence[Path]) -> list[UnreachedCode]:
        """Find code behind false conditions, unused functions and unused modules.

        Args:
          directories: the directories of the program's modules.

        Returns:
          The code that does not run, for each source file.
        """
        sources = self._sources
        dead = [_find_in_tree(nodes, self._evaluator) for nodes in self._scopes]
        roots = [directory.resolve() for directory in directories]
        has_main_part = bool(sources) and _has_main_part(sources[0].tree)
        # An unused function may be the only one that imports a module, which may use others.
        count = -1
        while count != (count := sum(len(code.lines) for code in dead)):
            _add_unused_modules(sources, dead, roots)
            if has_main_part:
                for code, unused in zip(
                    dead, _lines_of_unused_functions(sources, dead), strict=True
                ):
                    code.lines |= unused
        return dead

    def count_replicas(self, unreached: Sequence[UnreachedCode]) -> int:
        """Return the largest known number of replicas of the distribution strategies.

        Args:
          unreached: what `find_unreached` has returned.
        """
        counts = [
            _count_devices(node, scope, self._evaluator)
            for nodes, code in zip(self._scopes, unreached, strict=True)
            for node, scope in nodes.items()
            if isinstance(node, ast.Call)
            and last_name(node.func) == "MirroredStrategy"
            and not code.contains(node.lineno, ast.unparse(node.func))
        ]
        return max(counts, default=1)


def _has_main_part(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.Compare) and ast.unparse(node.left) == "__name__")
        or (isinstance(node, ast.Call) and last_name(node.func) in _MAIN_CALLS)
        for statement in tree.body
        if not isinstance(statement, _Definition)
        for node in ast.walk(statement)
    )


def _count_devices(call: ast.Call, scope: Scope, evaluator: Evaluator) -> int:
    """Return the number of devices in the arguments of a strategy; 1 if it is not known."""
    arguments = [*call.args[:1], *(keyword.value for keyword in call.keywords)]
    # A list of devices counts as what it was at first.
    found = [
        (isinstance(argument, ast.Name) and scope.find(argument.id)) or (argument, scope)
        for argument in arguments
    ]
    values = [evaluator.find_value(*pair) for pair in found]
    counts = [len(value) if isinstance(value, tuple) else value for value in values]
    return max((count for count in counts if isinstance(count, int)), default=1)


def _walk_scopes(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield the nodes of a syntax tree with the scopes that they are in."""
    pending = [(node, scope)]
    while pending:
        node, scope = pending.pop()
        yield node, scope
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, *INNER_SCOPES)):
            scope = Scope(node, scope)
        pending += ((child, scope) for child in ast.iter_child_nodes(node))


def _find_in_tree(nodes: Mapping[ast.AST, Scope], evaluator: Evaluator) -> UnreachedCode:
    code = UnreachedCode()
    for node, scope in nodes.items():
        match node:
            case ast.If(test=test) | ast.While(test=test):
                truth = evaluator.find_truth(test, scope)
                if truth is not None and not (truth and isinstance(node, ast.While)):
                    code.lines |= set(_lines(node.orelse if truth else node.body))
            case ast.IfExp(test=test):
                truth = evaluator.find_truth(test, scope)
                if truth is not None:
                    code.names |= set(_names_written(node.orelse if truth else node.body))
            case ast.BoolOp(op=operator, values=values):
                is_and = isinstance(operator, ast.And)
                for index, value in enumerate(values):
                    if evaluator.find_truth(value, scope) is (not is_and):
                        for inner in values[index + 1 :]:
                            code.names |= set(_names_written(inner))
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, [])
            for index, statement in enumerate(statements if isinstance(statements, list) else []):
                if _ends(statement, nodes, evaluator):
                    code.lines |= set(_lines(statements[index + 1 :]))
    return code


def _ends(statement: ast.AST, nodes: Mapping[ast.AST, Scope], evaluator: Evaluator) -> bool:
    """Return whether the statements that follow a statement in its block never run."""
    match statement:
        case ast.Return() | ast.Continue() | ast.Break():
            return True
        case ast.If(test=test):
            truth = evaluator.find_truth(test, nodes[statement])
            taken = statement.body if truth else statement.orelse
            return truth is not None and bool(taken) and _ends(taken[-1], nodes, evaluator)
    return name_references.ends_program(statement)


def _names_written(node: ast.AST) -> Iterator[tuple[int, str]]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute | ast.Name):
            yield inner.end_lineno or inner.lineno, ast.unparse(inner)


def _lines(statements: Iterable[ast.stmt]) -> Iterator[int]:
    for statement in statements:
        yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _add_unused_modules(
    sources: Sequence[SourceFile], dead: Sequence[UnreachedCode], roots: Sequence[Path]
) -> None:
    """Add the lines of the modules that only code that does not run imports."""
    files = {str(source.path.resolve()): index for index, source in enumerate(sources)}

    def imported(file: str) -> Iterator[str] | None:
        if file not in files:
            return None
        index = files[file]
        found = find_imported_files(sources[index].tree, Path(file), roots, dead[index].lines)
        return (str(path.resolve()) for path in found)

    reached = find_reachable(list(files)[:1], imported)
    for file, index in files.items():
        if file not in reached:
            dead[index].lines |= set(_lines(sources[index].tree.body))


def _lines_of_unused_functions(
    sources: Sequence[SourceFile], dead: Sequence[UnreachedCode]
) -> list[set[int]]:
    """Find the lines of functions that the program does not use."""
    bodies: dict[str, list[tuple[int, _Function, set[str]]]] = {}
    used: set[str] = set()
    for index, source in enumerate(sources):
        for definition, owner in _find_functions(source.tree):
            if definition.lineno not in dead[index].lines:
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


def _names_outside_of_functions(tree: ast.Module, dead: UnreachedCode) -> Iterator[str]:
    left_out = {id(node) for function, _ in _find_functions(tree) for node in function.body}

    def visit(node: ast.AST) -> Iterator[str]:
        if id(node) in left_out:
            return
        yield from _names_of_node(node, dead)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    yield from visit(tree)


def _names_in(statements: Iterable[ast.stmt], dead: UnreachedCode) -> Iterator[str]:
    for statement in statements:
        for node in ast.walk(statement):
            yield from _names_of_node(node, dead)


def _names_of_node(node: ast.AST, dead: UnreachedCode) -> Iterator[str]:
    line = getattr(node, "end_lineno", 0)
    if getattr(node, "lineno", 0) in dead.lines:
        return
    if isinstance(node, ast.Name | ast.Attribute):
        if not dead.names or (line, ast.unparse(node)) not in dead.names:
            yield node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
