"""Builds the shell command `tpuserve run ...` that runs an old program."""

import ast
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer.compat.source.name_references import find_name_references
from trainer.migration.program import package_script
from trainer.migration.program.sources import SourceFile

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


_CORES = 8
_TPU_FLAG = "use_tpu"
# A program mostly fails without the path of its data or checkpoints, although few programs say so.
_PATH = re.compile(r"(.*[_-])?(dir|file|path)")

# Methods that datasets have only if TensorFlow 1's behaviour is enabled. The command for a program
# that calls one of them has the option --tf1.
_V1_METHODS = ("make_initializable_iterator", "make_one_shot_iterator")


@dataclass(frozen=True)
class V1MethodCall:
    """A call of a method that datasets have only while TensorFlow 1's behaviour is enabled.

    Attributes:
      name: the method, as the report shows it, such as ".make_one_shot_iterator()".
    """

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} calls {self.name}"


def build_command(
    sources: Sequence[SourceFile], *, says_tf1: bool, emulates_tpu: bool = True
) -> str:
    """Build the shell command that runs a program.

    The command sets the flags that the program requires, and its paths that have no default.

    Args:
      says_tf1: whether to add the option --tf1, which enables TensorFlow 1's behaviour.
    """
    trees = [source.tree for source in sources]
    flags = [flag for tree in trees for flag in find_flags(tree)]
    words = ["tpuserve", "run"]
    if says_tf1:
        words.append("--tf1")
    on_tpu = emulates_tpu and _uses_tpu(trees)
    if on_tpu:
        words += ["--emulate-tpu", str(_CORES)]
    package = package_script.find_package(sources[0])
    if package is None:
        words.append(shlex.quote(sources[0].file))
    else:
        words += ["-m", package.name]
        if package.root != Path.cwd():
            is_absolute = Path(sources[0].file).is_absolute()
            root = str(package.root) if is_absolute else os.path.relpath(package.root)
            words = ["cd", shlex.quote(root), "&&", *words]
    arguments = {
        flag.name: flag.format_argument(flag.name.upper().replace("-", "_"))
        for flag in flags
        if _needs_value(flag) and not _is_tpu_flag(flag)
    }
    for flag in filter(_is_tpu_flag, flags):
        if on_tpu and not flag.is_on:
            arguments[flag.name] = flag.format_true()
        elif not emulates_tpu and flag.is_on:
            arguments[flag.name] = f"--{flag.name}=False"
    return " ".join([*words, *arguments.values()])


def build_cpu_command(sources: Sequence[SourceFile], *, says_tf1: bool) -> str | None:
    """Build the command that runs a program without its TPU; None if no flag turns it off.

    The arguments are those of `build_command`.
    """
    trees = [source.tree for source in sources]
    flags = [flag for tree in trees for flag in find_flags(tree)]
    if not any(_is_tpu_flag(flag) for flag in flags) or not _uses_tpu(trees):
        return None
    return build_command(sources, says_tf1=says_tf1, emulates_tpu=False)


def find_unset_flags(sources: Sequence[SourceFile]) -> list[ProgramFlag]:
    """Return the flags that the command of `build_command` does not set, which keep their defaults.

    Args:
      sources: the script and the program's own modules.
    """
    flags = [flag for source in sources for flag in find_flags(source.tree)]
    return [flag for flag in flags if not _needs_value(flag) and not _is_tpu_flag(flag)]


def _needs_value(flag: ProgramFlag) -> bool:
    is_empty_path = flag.has_default and not flag.default and not flag.is_switch
    return flag.is_required or (is_empty_path and _PATH.fullmatch(flag.name) is not None)


def _is_tpu_flag(flag: ProgramFlag) -> bool:
    return flag.name.replace("-", "_") == _TPU_FLAG


def find_v1_method(sources: Sequence[SourceFile]) -> V1MethodCall | None:
    """Find the first call of a dataset's method that needs TensorFlow 1's behaviour.

    Returns None if the program does not call such a method.
    """
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr in _V1_METHODS and _is_method(node):
                return V1MethodCall(source.file, node.end_lineno or node.lineno, f".{node.attr}()")
    return None


def _is_method(node: ast.Attribute) -> bool:
    # Do not count a function of a module as a dataset's method: functions such as
    # tf.compat.v1.data.make_one_shot_iterator exist even without TensorFlow 1's behaviour.
    return not (isinstance(node.value, ast.Attribute) and node.value.attr == "data")


def _uses_tpu(trees: Sequence[ast.Module]) -> bool:
    creates_estimator = any(
        "TPUEstimator" in reference.name.split(".")
        for tree in trees
        for reference in find_name_references(tree)
    )
    use_tpu_values = [
        keyword.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == _TPU_FLAG
    ]
    is_turned_off = use_tpu_values and all(
        isinstance(value, ast.Constant) and value.value is False for value in use_tpu_values
    )
    return creates_estimator and not is_turned_off
