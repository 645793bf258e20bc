"""Finds the command-line flags that an old program defines, and the values that they have."""

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.compat.source.name_references import walk
from trainer.migration.program.sources import SourceFile

_TRUE_WORDS = ("1", "on", "t", "true", "y", "yes")
# Names that programs give to the object whose attributes are the values of the flags.
FLAG_OBJECTS = {"FLAGS", "args", "flags", "flags_obj", "opts", "options"}


@dataclass(frozen=True)
class ProgramFlag:
    """A command-line flag that a program defines.

    Attributes:
      is_switch: whether the flag takes no value, as with argparse's action "store_true".
      choices: the accepted values; empty if every value is accepted.
      has_default: whether the default value is known, because the source has it as a literal.
      variable: the attribute that has the flag's value, such as "use_tpu" for --use-tpu.
      convert: converts a value of the command line; None if it is not known how.
    """

    name: str
    is_required: bool = False
    is_switch: bool = False
    is_on: bool = False
    choices: tuple[str, ...] = ()
    has_default: bool = field(default=False, compare=False)
    default: object = field(default=None, compare=False)
    variable: str = field(default="", compare=False)
    convert: Callable[[str], object] | None = field(default=None, compare=False)

    def format_argument(self, value: str) -> str:
        """Return the command-line argument that sets the flag, such as "--steps=100"."""
        return f"--{self.name}" if self.is_switch else f"--{self.name}={value}"

    def format_true(self) -> str:
        """Return the command-line argument that sets the flag to true, such as "--use_tpu=True"."""
        true_words = (choice for choice in self.choices if choice.lower() in _TRUE_WORDS)
        return self.format_argument(next(true_words, "True"))


def find_flags(tree: ast.Module) -> list[ProgramFlag]:
    """Find the flags that a file defines with names that are string literals."""
    calls = [node for node in walk(tree) if isinstance(node, ast.Call)]
    required = {name for call in calls for name in _flags_marked_required(call)}
    return [flag for call in calls for flag in _defined_flags(call, required)]


def _read_bool(text: str) -> bool:
    return text.lower() in _TRUE_WORDS


_ABSL_TYPES: Mapping[str, Callable[[str], object]] = {
    "bool": _read_bool,
    "boolean": _read_bool,
    "enum": str,
    "float": float,
    "integer": int,
    "string": str,
}
_ARGPARSE_TYPES: Mapping[str, Callable[[str], object]] = {"float": float, "int": int, "str": str}
# The value of a flag of argparse without a value in the command line: action → value.
_ACTION_DEFAULTS = {"store_true": False, "store_false": True}


def _defined_flags(call: ast.Call, required: set[str]) -> Iterator[ProgramFlag]:
    function = _function_name(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if function.startswith("DEFINE_"):
        name = _text(keywords.get("name", call.args[0] if call.args else None))
        default = keywords.get("default", call.args[1] if len(call.args) > 1 else None)
        convert = _ABSL_TYPES.get(function.removeprefix("DEFINE_"))
        if convert is _read_bool and (text := _text(default)) is not None:
            default = ast.Constant(_read_bool(text))
        if name is not None:
            is_required = name in required or _is_true(keywords.get("required"))
            yield ProgramFlag(
                name,
                is_required,
                is_on=_is_true(default),
                **_default(default, is_literal=convert is not None),
                variable=name,
                convert=convert,
            )
    elif function == "add_argument":
        names = [text for argument in call.args if (text := _text(argument))]
        long_name = next((name for name in names if name.startswith("--")), None)
        if long_name is None:
            return
        action, type_name = _text(keywords.get("action")), keywords.get("type", ast.Name("str"))
        convert = _ARGPARSE_TYPES.get(type_name.id) if isinstance(type_name, ast.Name) else None
        default = keywords.get("default", ast.Constant(_ACTION_DEFAULTS.get(action or "")))
        # argparse converts a default that is a string, as it converts the command line.
        is_literal = _text(default) is None or convert is str
        yield ProgramFlag(
            long_name[2:],
            _is_true(keywords.get("required")),
            action in _ACTION_DEFAULTS,
            _is_true(keywords.get("default")),
            _choices(keywords.get("choices")),
            **_default(default, is_literal=is_literal),
            variable=_text(keywords.get("dest")) or long_name[2:].replace("-", "_"),
            convert=convert if action in (None, "store") and "nargs" not in keywords else None,
        )


def _default(node: ast.AST | None, *, is_literal: bool) -> dict[str, Any]:
    try:
        value = ast.literal_eval(node) if isinstance(node, ast.expr) else ...
    except ValueError:
        value = ...
    is_known = value is None or (value is not ... and is_literal)
    return {"has_default": is_known, "default": value if is_known else None}


def _choices(node: ast.AST | None) -> tuple[str, ...]:
    elements = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    return tuple(text for element in elements if (text := _text(element)))


def _flags_marked_required(call: ast.Call) -> Iterator[str]:
    if _function_name(call) in ("mark_flag_as_required", "mark_flags_as_required") and call.args:
        for node in ast.walk(call.args[0]):
            text = _text(node)
            if text is not None:
                yield text


def _function_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_true(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def find_given_flags(
    flags: Sequence[ProgramFlag], arguments: Sequence[str]
) -> list[tuple[ProgramFlag, str | None]]:
    """Return the flags that a command line sets, with their values; None for a flag without one.

    Args:
      arguments: the command line, such as ("--use_tpu=False", "--steps", "100").
    """
    given = []
    for argument, following in itertools.zip_longest(arguments, arguments[1:]):
        name, equals, value = argument.lstrip("-").partition("=")
        for flag in flags if argument.startswith("-") else ():
            if name == flag.name:
                has_value = equals or _takes_next_argument(flag)
                given.append((flag, (value if equals else following) if has_value else None))
            elif name == f"no{flag.name}" and flag.convert is _read_bool:
                given.append((flag, "False"))
    return given


def _takes_next_argument(flag: ProgramFlag) -> bool:
    return not flag.is_switch and flag.convert is not _read_bool


def find_flag_values(
    sources: Sequence[SourceFile], unset: Sequence[ProgramFlag], arguments: Sequence[str]
) -> dict[str, object]:
    """Return the values of flags that are known without running the program.

    A flag that the program itself sets has no known value.

    Args:
      unset: the flags that keep their defaults, if `arguments` do not set them.
    """
    flags = [flag for source in sources for flag in find_flags(source.tree)]
    given = find_given_flags(flags, arguments)
    given_names = {flag.name for flag, _ in given}
    pairs = [(flag.variable, _given_value(flag, text)) for flag, text in given]
    pairs += [
        (flag.variable, flag.default if flag.has_default else ...)
        for flag in unset
        if flag.name not in given_names
    ]
    nodes = [node for source in sources for node in walk(source.tree)]
    new_defaults = dict(itertools.chain.from_iterable(map(_set_defaults, nodes)))
    values: dict[str, object] = {}
    for name, value in pairs:
        value = (
            value if name in {flag.variable for flag, _ in given} else new_defaults.get(name, value)
        )
        values[name] = value if values.get(name, value) == value else ...
    written = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value).rpartition(".")[2] in FLAG_OBJECTS
    }
    return {
        name: value for name, value in values.items() if value is not ... and name not in written
    }


def _given_value(flag: ProgramFlag, text: str | None) -> object:
    """Return the value of a flag that the command line sets; ... if it is not known."""
    if text is None:
        if flag.is_switch:
            return not flag.default
        return True if flag.convert is _read_bool else ...
    try:
        return ... if flag.convert is None else flag.convert(text)
    except ValueError:
        return ...


def _set_defaults(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield the defaults that a call such as parser.set_defaults(steps=1) sets; ... if unknown."""
    if not isinstance(node, ast.Call):
        return
    function = _function_name(node)
    pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
    if function == "set_default" and len(node.args) == 2:
        pairs = [(_text(node.args[0]), node.args[1])]
    if function in ("set_default", "set_defaults"):
        for name, value in pairs:
            if name is not None:
                found = _default(value, is_literal=True)
                yield name, found["default"] if found["has_default"] else ...
