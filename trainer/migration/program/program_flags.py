"""The flags that a program defines, with absl, tf.flags or argparse."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_YES = ("1", "on", "t", "true", "y", "yes")


@dataclass(frozen=True)
class Flag:
    """An argument that a program can be given.

    Attributes:
      name: without dashes.
      is_required: whether the program ends without it.
      is_switch: whether it is given without a value, as argparse's store_true.
      is_on: whether it is true by default.
      choices: the words that it takes; empty where any.
    """

    name: str
    is_required: bool = False
    is_switch: bool = False
    is_on: bool = False
    choices: tuple[str, ...] = ()

    def given(self, value: str) -> str:
        """The word that gives it on a command line."""
        return f"--{self.name}" if self.is_switch else f"--{self.name}={value}"

    def turned_on(self) -> str:
        """The word that makes it true."""
        return self.given(next((each for each in self.choices if each.lower() in _YES), "True"))


def of(tree: ast.Module) -> list[Flag]:
    """The flags that a file defines by names that can be read, in order."""
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    required = {name for call in calls for name in _marked(call)}
    return [flag for call in calls for flag in _defined(call, required)]


def _defined(call: ast.Call, required: set[str]) -> Iterator[Flag]:
    function, name = _called(call), _text(call.args[0] if call.args else None)
    given = {each.arg: each.value for each in call.keywords}
    if name is None:
        return
    if function.startswith("DEFINE_"):
        default = given.get("default", call.args[1] if len(call.args) > 1 else None)
        yield Flag(
            name, name in required or _is_true(given.get("required")), False, _is_true(default)
        )
    elif function == "add_argument":
        names = [text for each in call.args if (text := _text(each))]
        long = next((each for each in names if each.startswith("--")), None)
        if long is not None:
            is_switch = _text(given.get("action")) == "store_true"
            is_on = _is_true(given.get("default"))
            is_required = _is_true(given.get("required"))
            yield Flag(long[2:], is_required, is_switch, is_on, _choices(given.get("choices")))


def _choices(node: ast.AST | None) -> tuple[str, ...]:
    words = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    return tuple(text for each in words if (text := _text(each)))


def _marked(call: ast.Call) -> Iterator[str]:
    if _called(call) in ("mark_flag_as_required", "mark_flags_as_required") and call.args:
        for each in ast.walk(call.args[0]):
            text = _text(each)
            if text is not None:
                yield text


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_true(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
