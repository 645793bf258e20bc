"""Refuses models whose constants, or whose functions, become far larger than the file."""

from collections.abc import Sequence
from pathlib import Path

from tpuserve.errors import ModelTooLarge
from tpuserve.untrusted.graph_size import GraphSize, SizeEvaluator, UnboundedSize
from tpuserve.untrusted.model_runs import ModelRun, find_import
from tpuserve.untrusted.program import Program


def check_sizes(
    program: Program, runs: Sequence[ModelRun], max_constant_bytes: int, directory: Path
) -> None:
    """Check how many bytes the constants of a metagraph, and the tensors made of them, ask for.

    Args:
      program: a metagraph.
      runs: the runs that load the metagraph and answer requests.
      max_constant_bytes: the limit in bytes. The bytes that constants have in the file are free.
      directory: the directory of the SavedModel, for the error.

    Raises:
      ModelTooLarge: a run asks for more bytes, or functions call themselves, or call each other so
        often that TensorFlow cannot inline them, or a constant is decoded.
    """
    evaluators = [SizeEvaluator(program, run) for run in runs]
    evaluators.append(SizeEvaluator(program, find_import(program), enters_functions=False))
    for evaluator in evaluators:
        try:
            size = evaluator.evaluate()
        except UnboundedSize as error:
            raise ModelTooLarge(
                f"{directory} may become too large to run: {error}. Export the model without, or "
                f"serve it with --max_constant_bytes=0 if you trust it."
            ) from error
        _check_size(size, evaluator.run, max_constant_bytes, directory)


def _check_size(size: GraphSize, run: ModelRun, limit: int, directory: Path) -> None:
    largest = size.largest
    asked = max(size.constant_bytes, size.largest_variable.num_bytes)
    if asked <= limit:
        return
    if size.constant_bytes <= limit:
        largest = size.largest_variable
    raise ModelTooLarge(
        f"{directory} asks for {asked:,} bytes of constants during {run.purpose}, of which "
        f"{largest.site} asks for {largest.num_bytes:,}; the limit is {limit:,} bytes. Keep large "
        f"values in variables, or raise --max_constant_bytes if you trust the model."
    )
