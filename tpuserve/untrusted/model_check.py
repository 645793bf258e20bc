"""Runs all checks of an untrusted SavedModel before a server loads it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tpuserve.untrusted import op_check, size_check
from tpuserve.untrusted.model_runs import find_model_runs
from tpuserve.untrusted.program import Program


def check_model(
    meta_graphs: Iterable[Any],
    directory: Path,
    *,
    forbid_unsafe_ops: bool,
    max_constant_bytes: int,
) -> None:
    """Check what the ops of a SavedModel can do, and how much memory its constants need.

    Args:
      meta_graphs: TensorFlow's MetaGraphDef messages.
      directory: the directory of the SavedModel.
      forbid_unsafe_ops: whether to refuse ops that can do more than compute, such as open files.
      max_constant_bytes: the memory, in bytes, that constants and tensors computed from them may
        need in addition to the size of the constants in the file; 0 for no limit.

    Raises:
      UnsafeModel: an op can do more than compute, or opens a file that is not the model's own.
      ModelTooLarge: constants become too large, or the graph has too many nodes after functions
        are inlined.
      DamagedSavedModel: an asset or an initialisation op is not valid.
    """
    programs = [Program(meta_graph) for meta_graph in meta_graphs]
    if forbid_unsafe_ops:
        op_check.check_ops(programs, directory)
    if not forbid_unsafe_ops and not max_constant_bytes:
        return
    for program in programs:
        runs = find_model_runs(program, directory)
        if forbid_unsafe_ops:
            op_check.check_runs(program, runs, directory)
        if max_constant_bytes:
            size_check.check_sizes(program, runs, max_constant_bytes, directory)
