"""Finds the command-line flags that a program defines with absl, tf.flags or argparse."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_TRUE_WORDS = ("1", "on", "t", "true", "y", "yes")


@dataclass(frozen=True)
class ProgramFlag:
    """A command-line flag that a program defines.

    Attributes:
      is_switch: whether the flag takes no value, as with argparse's action "store_true".
      choices: the accepted values; empty if every value is accepted.
      has_default: whether the default value is known, because the source has it as a literal.
    """

    name: str
    is_required: bool = False
    is_switch: bool = False
    is_on: bool = False
    choices: tuple[str, ...] = ()
    has_default: bool = field(default=False, compare=False)
    default: object = field(default=None, compare=False)

    def format_argument(self, value: str) -> str:
        """Return the command-line argument that sets the flag, such as "--steps=100"."""
        return f"--{self.name}" if self.is_switch else f"--{self.name}={value}"

    def format_true(self) -> str:
        """Return the command-line argument that sets the flag to true, such as "--use_tpu=True"."""
        true_words = (choice for choice in self.choices if choice.lower() in _TRUE_WORDS)
        return self.format_argument(next(true_words, "True"))


def find_flags(tree: ast.Module) -> list[ProgramFlag]:
    """Find the flags that a file defines with names that are string literals."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    required = {name for call in calls for name in _flags_marked_required(call)}
    return [flag for call in calls for flag in _defined_flags(call, required)]


def _defined_flags(call: ast.Call, required: set[str]) -> Iterator[ProgramFlag]:
    function, name = _function_name(call), _text(call.args[0] if call.args else None)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name is None:
        return
    if function.startswith("DEFINE_"):
        default = keywords.get("default", call.args[1] if len(call.args) > 1 else None)
        yield ProgramFlag(
            name,
            name in required or _is_true(keywords.get("required")),
            False,
            _is_true(default),
            has_default=isinstance(default, ast.Constant),
            default=default.value if isinstance(default, ast.Constant) else None,
        )
    elif function == "add_argument":
        names = [text for argument in call.args if (text := _text(argument))]
        long_name = next((name for name in names if name.startswith("--")), None)
        if long_name is not None:
            is_switch = _text(keywords.get("action")) == "store_true"
            is_on = _is_true(keywords.get("default"))
            is_required = _is_true(keywords.get("required"))
            default = keywords.get("default", ast.Constant(False if is_switch else None))
            yield ProgramFlag(
                long_name[2:],
                is_required,
                is_switch,
                is_on,
                _choices(keywords.get("choices")),
                has_default=isinstance(default, ast.Constant),
                default=default.value if isinstance(default, ast.Constant) else None,
            )


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
