"""Refuses untrusted models whose ops can do more than compute, such as open any file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tpuserve.errors import UnsafeModel
from tpuserve.saved_model.op_packages import op_with_package
from tpuserve.untrusted.attributes import unsafe_attribute
from tpuserve.untrusted.model_runs import ModelRun
from tpuserve.untrusted.op_families import UNKNOWN, Permission, op_families
from tpuserve.untrusted.paths import PathTracer
from tpuserve.untrusted.program import Program

_ADVICE = "or serve it with --forbid_unsafe_ops=false if you trust it."


def check_ops(programs: Iterable[Program], directory: Path) -> None:
    """Check that the graphs and functions of a SavedModel contain no op that is refused.

    Args:
      programs: all metagraphs of the SavedModel.
      directory: the directory of the SavedModel, for the text of an error.

    Raises:
      UnsafeModel: a graph or function has an op that is refused or that nobody has reviewed. The
        message has the number of such ops of each type.
    """
    refused: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    for program in programs:
        for site in program.all_sites():
            op = site.node.op
            reason = _refusal(site.node, program)
            if reason and op not in op_families():
                foreign[op_with_package(op)] += 1
            elif reason:
                refused[reason] += 1
    if foreign:
        raise UnsafeModel(
            f"{directory} holds ops of another package, or of a later TensorFlow: "
            f"{_format_counts(foreign)}. This server cannot load them: export the model without "
            f"them, for example with tokens as its input instead of text."
        )
    if refused:
        raise UnsafeModel(
            f"{directory} holds ops that are not known to compute only: {_format_counts(refused)}. "
            f"Export the model without them, {_ADVICE}"
        )


def _format_counts(ops: Counter[str]) -> str:
    return ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))


def _refusal(node: Any, program: Program) -> str:
    """Return the op type of a node and why the op is refused; "" if it is not refused.

    Args:
      node: a NodeDef.
      program: the metagraph that has the node.
    """
    if node.op in program.functions:
        return ""
    family = op_families().get(node.op, UNKNOWN)
    if family.permission is Permission.REFUSED:
        return f"{node.op} ({family.name})"
    return unsafe_attribute(node)


def check_runs(program: Program, runs: Sequence[ModelRun], directory: Path) -> None:
    """Check that session runs open only the model's own files and execute only safe ops.

    Args:
      program: the metagraph.
      runs: the session runs that load the metagraph and answer requests.
      directory: the directory of the SavedModel, for the text of an error.

    Raises:
      UnsafeModel: a run can open a file that is not the model's own, or execute an op of
        `Permission.HELD`. A graph is allowed to contain such an op, but no run may execute it.
    """
    families = op_families()
    tracer = PathTracer(program, runs)
    for run in runs:
        for site in run.reached.sites:
            family = families.get(site.node.op, UNKNOWN)
            if family.permission is Permission.HELD:
                raise UnsafeModel(
                    f"{directory} does more than compute during {run.purpose}: {site} is for "
                    f"{family.name}. Export the model with signatures that only compute, {_ADVICE}"
                )
            if family.permission is Permission.FILE and not tracer.is_own_path(
                run, site, family.path_input
            ):
                raise UnsafeModel(
                    f"{directory} opens files that are not its own during {run.purpose}: the path "
                    f"of {site} is no asset. Export the file as an asset, {_ADVICE}"
                )
