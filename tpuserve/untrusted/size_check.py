"""Refuses untrusted models that need much more memory than the size of their files.

Constants from which larger tensors are computed, and nested functions that TensorFlow inlines, can
cause this.
"""

from collections.abc import Sequence
from pathlib import Path

from tpuserve.errors import ModelTooLarge
from tpuserve.untrusted.graph_size import GraphSize, SizeEvaluator, UnboundedSize
from tpuserve.untrusted.model_runs import ModelRun, find_import
from tpuserve.untrusted.program import Program


def check_sizes(
    program: Program, runs: Sequence[ModelRun], max_constant_bytes: int, directory: Path
) -> None:
    """Check that constants, and tensors computed from constants, do not need too much memory.

    Args:
      program: the metagraph that has the constants.
      runs: the session runs that load the metagraph and answer requests.
      max_constant_bytes: the number of bytes that these tensors may need in a run, in addition to
        the bytes of the constants that the SavedModel stores.
      directory: the directory of the SavedModel, for the text of an error.

    Raises:
      ModelTooLarge: the tensors need more memory than `max_constant_bytes`; or their memory is
        unknown, because a function calls itself, because inlined functions have too many nodes, or
        because an op decodes a constant, such as a picture.
    """
    evaluators = [SizeEvaluator(program, run) for run in runs]
    evaluators.append(SizeEvaluator(program, find_import(program), enters_functions=False))
    for evaluator in evaluators:
        try:
            size = evaluator.evaluate()
        except UnboundedSize as error:
            raise ModelTooLarge(
                f"{directory} may become too large to run: {error}. Change the model, or serve "
                f"it with --max_constant_bytes=0 if you trust it."
            ) from error
        _check_size(size, evaluator.run, max_constant_bytes, directory)


def _check_size(size: GraphSize, run: ModelRun, limit: int, directory: Path) -> None:
    largest = size.largest
    num_bytes = max(size.constant_bytes, size.largest_variable.num_bytes)
    if num_bytes <= limit:
        return
    if size.constant_bytes <= limit:
        largest = size.largest_variable
    raise ModelTooLarge(
        f"{directory} asks for {num_bytes:,} bytes of constants during {run.purpose}, of which "
        f"{largest.site} asks for {largest.num_bytes:,}; the limit is {limit:,} bytes. Keep large "
        f"values in variables, or raise --max_constant_bytes if you trust the model."
    )
