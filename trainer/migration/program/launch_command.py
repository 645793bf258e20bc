"""Builds the shell command `tpuserve run ...` that runs an old program."""

import ast
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source.name_references import find_name_references
from trainer.migration.program import package_script
from trainer.migration.program.program_flags import ProgramFlag, find_flags, find_given_flags
from trainer.migration.program.sources import SourceFile

_CORES = 8
_TPU_FLAG = "use_tpu"
_FALSE_WORDS = ("0", "f", "false", "n", "no", "off")
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
    sources: Sequence[SourceFile],
    *,
    says_tf1: bool,
    emulates_tpu: bool = True,
    given: Sequence[str] = (),
    replicas: int = 1,
) -> str:
    """Build the shell command that runs a program.

    The command sets the flags that the program requires, and its paths that have no default.

    Args:
      says_tf1: whether to add the option --tf1, which enables TensorFlow 1's behaviour.
      given: arguments of the program that the user has chosen.
      replicas: the number of replicas of the program's distribution strategy; if there are several,
        each needs a core.
    """
    trees = [source.tree for source in sources]
    flags = [flag for tree in trees for flag in find_flags(tree)]
    given_flags = find_given_flags(flags, given)
    is_off = any(_is_tpu_flag(flag) and _is_false(value) for flag, value in given_flags)
    flags = [flag for flag in flags if flag not in dict(given_flags)]
    words = ["tpuserve", "run"]
    if says_tf1:
        words.append("--tf1")
    on_tpu = emulates_tpu and not is_off and _uses_tpu(trees)
    if on_tpu:
        words += ["--emulate-tpu", str(_CORES)]
    elif replicas > 1:
        words += ["--emulate-tpu", str(replicas)]
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
    return " ".join([*words, *map(shlex.quote, given), *arguments.values()])


def build_cpu_command(
    sources: Sequence[SourceFile],
    *,
    says_tf1: bool,
    given: Sequence[str] = (),
    replicas: int = 1,
) -> str | None:
    """Build the command that runs a program without its TPU.

    The arguments are those of `build_command`. Returns None if no flag turns the TPU off, or if the
    user has chosen the flag's value.
    """
    trees = [source.tree for source in sources]
    flags = [flag for tree in trees for flag in find_flags(tree)]
    if any(_is_tpu_flag(flag) for flag, _ in find_given_flags(flags, given)):
        return None
    if not any(_is_tpu_flag(flag) for flag in flags) or not _uses_tpu(trees):
        return None
    return build_command(
        sources, says_tf1=says_tf1, emulates_tpu=False, given=given, replicas=replicas
    )


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


def _is_false(value: str | None) -> bool:
    return value is not None and value.lower() in _FALSE_WORDS


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
