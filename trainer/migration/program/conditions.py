"""Computes the values of expressions of an old program, as far as that needs no run."""

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from trainer.compat.source.name_references import last_name
from trainer.migration.program.program_flags import FLAG_OBJECTS

_VERSION_CLASSES = {"LooseVersion", "StrictVersion", "Version", "parse", "parse_version"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef
# Expressions with variables of their own, whose values change from one run to the next.
INNER_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NEW_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, *INNER_SCOPES)
_BUILTINS: Mapping[str, Callable[[Any], Any]] = {
    "bool": bool,
    "float": float,
    "int": int,
    "len": len,
    "str": str,
}
# Names that programs give to a dict or an object with settings.
_SETTINGS = {"cfg", "config", "hparams", "hps", "params"}
_METHODS = ("endswith", "lower", "split", "startswith", "strip", "upper")


class UnknownValue(Exception):
    """Raised if the value of an expression cannot be computed without running the program."""


# What a computation of the program's own may raise.
_UNKNOWN = (
    *(UnknownValue, TypeError, ValueError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError),
)
# What the program may change after it has assigned it.
_CHANGEABLE = (ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)
# Calls whose keywords are the entries of the dict or object that they return.
_DICT_CALLS = ("HParams", "dict")


class Scope:
    """The variables of a module or of a function.

    Args:
      node: the module, the function, or an expression of `INNER_SCOPES`.
      outer: the scope around a function; None for a module.
      constants: variables of a module and their values, which the source does not assign.
      rebound: names of variables that other modules assign, so that their values are not known.
    """

    def __init__(
        self,
        node: ast.AST,
        outer: "Scope | None" = None,
        constants: Mapping[str, str] | None = None,
        rebound: Iterable[str] = (),
    ) -> None:
        self._node, self._outer = node, outer
        self._constants, self._rebound = constants or {}, rebound

    @functools.cached_property
    def _values(self) -> dict[str, ast.expr | None]:
        values: dict[str, ast.expr | None] = {
            name: ast.Constant(value) for name, value in self._constants.items()
        }
        for name, value in _find_bindings(self._node):
            values[name] = None if name in values else value
        return values | dict.fromkeys(self._rebound)

    def find(self, name: str) -> "tuple[ast.expr, Scope] | None":
        """Return the expression that is assigned to a variable and its scope.

        Returns None if there is none, if several are assigned, or if something else binds the name.
        """
        if name in self._values:
            value = self._values[name]
            return None if value is None else (value, self)
        return None if self._outer is None else self._outer.find(name)


def _find_bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a scope binds; with the expression, if one is assigned."""
    if isinstance(node, INNER_SCOPES):
        for inner in ast.walk(node):
            if isinstance(inner, ast.arg):
                yield inner.arg, None
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id, None
        return
    assert isinstance(node, ast.Module | _Function)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Global if isinstance(node, ast.Module) else ast.Nonlocal):
            yield from ((name, None) for name in inner.names)
    if not isinstance(node, ast.Module):
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += filter(None, (arguments.vararg, arguments.kwarg))
        yield from ((argument.arg, None) for argument in every)
    pending: list[ast.AST] = list(node.body)
    while pending:
        inner = pending.pop()
        match inner:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield inner.name, None
            case ast.Import() | ast.ImportFrom():
                names = (alias.asname or alias.name.partition(".")[0] for alias in inner.names)
                yield from ((name, None) for name in names)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
                pending.append(value)
                continue
            case ast.Global() | ast.Nonlocal():
                yield from ((name, None) for name in inner.names)
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name, None
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name, None
        if not isinstance(inner, _NEW_SCOPES):
            pending += ast.iter_child_nodes(inner)


class Evaluator:
    """Computes the values of expressions from constants, versions and the values of flags.

    Args:
      flags: the values of flags, by the names of their variables.
    """

    def __init__(self, flags: Mapping[str, object]) -> None:
        self._flags = flags
        self._entries: dict[str, list[tuple[str, tuple[ast.expr, Scope]]]] = {}
        self._functions: dict[str, list[tuple[_Function, Scope]]] = {}
        self._active: set[ast.AST] = set()
        self._keywords: dict[str, list[tuple[ast.expr, Scope]]] = {}
        self._known: dict[ast.expr, object] = {}

    def read_node(self, node: ast.AST, scope: Scope) -> None:
        """Record a function, or what is stored in a dict, such as params["use_tpu"]."""
        match node:
            case ast.FunctionDef(name=name, decorator_list=[]):
                self._functions.setdefault(name, []).append((node, scope))
            case ast.Assign(
                targets=[
                    ast.Subscript(value=base, slice=ast.Constant(value=str(key)))
                    | ast.Attribute(value=base, attr=key)
                ]
            ):
                self._add_entry(last_name(base), key, node.value, scope)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._add_entries(name, value, scope)
            case ast.keyword(arg=str(key), value=value):
                self._keywords.setdefault(key, []).append((value, scope))
                self._add_entries(key, value, scope)
            case ast.Call(keywords=keywords) if last_name(node.func) in _DICT_CALLS:
                for keyword in keywords:
                    self._add_entry("", str(keyword.arg), keyword.value, scope)
            case ast.Dict():
                self._add_entries("", node, scope)

    def _add_entries(self, base: str, node: ast.expr, scope: Scope) -> None:
        for key, value in _dict_entries(node):
            self._add_entry(base, key, value, scope)

    def _add_entry(self, base: str, key: str, value: ast.expr, scope: Scope) -> None:
        self._entries.setdefault(key, []).append((base, (value, scope)))

    def _evaluate_entry(self, base: ast.expr, key: str, scope: Scope) -> Any:
        """Compute params["key"] or params.key from all that the program stores under this key."""
        found = scope.find(base.id) if isinstance(base, ast.Name) else None
        if found is not None and isinstance(found[0], ast.Call):
            function = last_name(found[0].func)
            # What a function of another package returns, such as json.load, is not known.
            if function not in (*_DICT_CALLS, *self._functions):
                raise UnknownValue
        name, entries = last_name(base), self._entries.get(key, [])
        own = [pair for dict_name, pair in entries if dict_name == name]
        if name not in _SETTINGS:
            return self._evaluate_all(own)
        # The settings of a program are handed on from one variable to another, and many programs
        # replace them by the flags of the same names.
        value = self._evaluate_all(own or [pair for _, pair in entries])
        keywords = self._keywords.get(key, ())
        # A call with the key as a keyword may replace the entry, as a flag of its name.
        if self._flags.get(key) not in (None, value) or any(
            self._evaluate_once(pair) != value for pair in keywords
        ):
            raise UnknownValue
        return value

    def find_truth(self, test: ast.expr, scope: Scope) -> bool | None:
        """Return whether a condition is true; None if that is not known."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self.find_truth(operand, scope)
                return None if truth is None else not truth
            case ast.BoolOp(op=operator, values=values):
                # One operand may decide, although others are unknown.
                truths = [self.find_truth(value, scope) for value in values]
                decisive = isinstance(operator, ast.Or)
                if decisive in truths:
                    return decisive
                return None if None in truths else not decisive
        value = self.find_value(test, scope)
        return None if value is ... else bool(value)

    def find_value(self, node: ast.expr, scope: Scope) -> object:
        """Return the value of an expression; ... if it is not known."""
        try:
            return self._evaluate(node, scope)
        except _UNKNOWN:
            return ...

    def _evaluate(self, node: ast.expr, scope: Scope) -> Any:
        """Compute the value of an expression of the program."""

        def compute(inner: ast.expr) -> Any:
            return self._evaluate(inner, scope)

        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return tuple(map(compute, elements))
            case ast.Name(id="TYPE_CHECKING"):
                return False
            case ast.Name(id=name):
                return self._evaluate_all([scope.find(name)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not compute(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -compute(operand)
            case ast.BoolOp(op=operator, values=values):
                return self._evaluate_bool(isinstance(operator, ast.And), values, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return compute(body if compute(test) else orelse)
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return _compare(operator, compute(left), compute(right))
            case ast.Attribute():
                return self._evaluate_attribute(node, scope)
            case (
                ast.Subscript(value=value, slice=ast.Constant(value=str(key)))
                | ast.Call(
                    func=ast.Attribute(value=value, attr="get"),
                    args=[ast.Constant(value=str(key)), *_],
                )
            ):
                return self._evaluate_entry(value, key, scope)
            case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=upper, step=None)):
                return compute(value)[: compute(upper) if upper is not None else None]
            case ast.Subscript(value=value, slice=index):
                return compute(value)[compute(index)]
            case ast.Call(func=ast.Name(id=name), args=[argument]) if name in _BUILTINS:
                return _BUILTINS[name](compute(argument))
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _METHODS:
                return getattr(compute(value), name)(*map(compute, node.args))
            case ast.Call(args=[argument]) if last_name(node.func) in _VERSION_CLASSES:
                return tuple(int(number) for number in re.findall(r"\d+", compute(argument))[:3])
            case ast.Call(func=function):
                return self._call(self._functions.get(last_name(function), []))
        raise UnknownValue

    def _call(self, found: Sequence[tuple[_Function, Scope]]) -> Any:
        """Compute what the one function of a name returns, if its arguments do not decide that."""
        if len(found) != 1 or found[0][0] in self._active:
            raise UnknownValue
        function, outer = found[0]
        scope, statements = Scope(function, outer), [*function.body]
        self._active.add(function)
        try:
            while statements:
                match statements.pop(0):
                    case ast.Return(value=value):
                        return None if value is None else self._evaluate(value, scope)
                    case ast.If(test=test, body=body, orelse=orelse):
                        statements[:0] = body if self._evaluate(test, scope) else orelse
                    case ast.Expr(value=ast.Constant()) | ast.Assign(targets=[ast.Name()]):
                        # A variable that is assigned once has its value in the scope.
                        continue
                    case _:
                        raise UnknownValue
            return None
        finally:
            self._active.remove(function)

    def _evaluate_all(self, found: Sequence[tuple[ast.expr, Scope] | None]) -> Any:
        """Compute the value that all of some expressions have."""
        values = [self._evaluate_once(pair) for pair in found]
        if not values or any(value != values[0] for value in values):
            raise UnknownValue
        return values[0]

    def _evaluate_once(self, pair: tuple[ast.expr, Scope] | None) -> Any:
        """Compute what is assigned to a variable or an entry, unless it was computed before."""
        # An expression that depends on itself, as in a loop, has no known value.
        if pair is None or pair[0] in self._active or isinstance(pair[0], _CHANGEABLE):
            raise UnknownValue
        if pair[0] not in self._known:
            self._active.add(pair[0])
            try:
                self._known[pair[0]] = self.find_value(*pair)
            finally:
                self._active.remove(pair[0])
        if self._known[pair[0]] is ...:
            raise UnknownValue
        return self._known[pair[0]]

    def _evaluate_bool(self, is_and: bool, values: Sequence[ast.expr], scope: Scope) -> Any:
        """Compute the operand that is the value of `a and b` or `a or b`."""
        result: Any = None
        for value in values:
            result = self._evaluate(value, scope)
            if bool(result) is not is_and:
                break
        return result

    def _evaluate_attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        path = ast.unparse(node)
        if path in ("tf.__version__", "tensorflow.__version__", "tf.VERSION"):
            try:
                return metadata.version("tensorflow")
            except metadata.PackageNotFoundError:
                raise UnknownValue from None
        known = {
            "six.PY2": False,
            "six.PY3": True,
            "sys.version_info": tuple(sys.version_info[:3]),
            "sys.version_info.major": sys.version_info.major,
            "typing.TYPE_CHECKING": False,
        }
        if path in known:
            return known[path]
        if node.attr in self._flags and _is_flag_object(node.value, scope):
            return self._flags[node.attr]
        if last_name(node.value) in _SETTINGS:
            return self._evaluate_entry(node.value, node.attr, scope)
        raise UnknownValue


def _dict_entries(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the keys and the values in {"key": value} or dict(key=value)."""
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            yield from ((str(keyword.arg), keyword.value) for keyword in keywords)


def _is_flag_object(node: ast.expr, scope: Scope) -> bool:
    """Return whether an expression is the object whose attributes are the values of flags."""
    found = scope.find(node.id) if isinstance(node, ast.Name) else None
    if found is not None:
        value = found[0]
        is_parsed = isinstance(value, ast.Call) and last_name(value.func) == "parse_args"
        return is_parsed or last_name(value) in FLAG_OBJECTS
    return last_name(node) in FLAG_OBJECTS


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
        case ast.In():
            return left in right
        case ast.NotIn():
            return left not in right
    raise UnknownValue
