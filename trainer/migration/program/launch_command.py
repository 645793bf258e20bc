"""The command that runs a program."""

import ast
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source.name_references import uses
from trainer.migration.program import package_script, program_flags
from trainer.migration.program.program_flags import Flag
from trainer.migration.program.sources import Source

_CORES = 8
_TPU_FLAG = "use_tpu"

# Methods that only what TensorFlow 1's behaviour makes has.
_V1_METHODS = ("make_initializable_iterator", "make_one_shot_iterator")


@dataclass(frozen=True)
class Sign:
    """What shows that a program needs TensorFlow 1's behaviour, though no name says so.

    Attributes:
      file: as it is shown.
      line: from 1.
      name: as the program writes it.
    """

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} calls {self.name}"


def command(sources: Sequence[Source], *, says_tf1: bool) -> str:
    """What a shell is to run.

    A word in capitals stands for what only the program's user knows. A TPU is emulated where the
    program makes a TPUEstimator, unless it says use_tpu=False itself.

    Args:
      sources: the script, and its modules.
      says_tf1: whether the command has to ask for TensorFlow 1.
    """
    trees = [each.tree for each in sources]
    flags = [each for tree in trees for each in program_flags.of(tree)]
    words = ["tpuserve", "run"]
    if says_tf1:
        words.append("--tf1")
    on_tpu = _uses_tpu(trees)
    if on_tpu:
        words += ["--emulate-tpu", str(_CORES)]
    part = package_script.of(sources[0])
    if part is None:
        words.append(shlex.quote(sources[0].file))
    else:
        words += ["-m", part.name]
        if part.root != Path.cwd():
            is_absolute = Path(sources[0].file).is_absolute()
            root = str(part.root) if is_absolute else os.path.relpath(part.root)
            words = ["cd", shlex.quote(root), "&&", *words]
    given = {
        each.name: each.given(each.name.upper().replace("-", "_"))
        for each in flags
        if each.is_required and not _is_tpu_flag(each)
    }
    if on_tpu:
        given |= {
            each.name: each.turned_on() for each in flags if _is_tpu_flag(each) and not each.is_on
        }
    return " ".join([*words, *given.values()])


def _is_tpu_flag(flag: Flag) -> bool:
    return flag.name.replace("-", "_") == _TPU_FLAG


def v1_method(sources: Sequence[Source]) -> Sign | None:
    """The first method that needs TensorFlow 1's behaviour."""
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr in _V1_METHODS and _is_method(node):
                return Sign(source.file, node.end_lineno or node.lineno, f".{node.attr}()")
    return None


def _is_method(node: ast.Attribute) -> bool:
    # tf.compat.v1.data.make_one_shot_iterator(dataset) is a function, which is always there.
    return not (isinstance(node.value, ast.Attribute) and node.value.attr == "data")


def _uses_tpu(trees: Sequence[ast.Module]) -> bool:
    makes = any("TPUEstimator" in each.name.split(".") for tree in trees for each in uses(tree))
    given = [
        each.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for each in node.keywords
        if each.arg == _TPU_FLAG
    ]
    refused = given and all(
        isinstance(each, ast.Constant) and each.value is False for each in given
    )
    return makes and not refused
