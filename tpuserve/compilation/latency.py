"""Recommends a TPU topology and a batch size whose estimated time is within a latency goal."""

from collections.abc import Sequence

from tpuserve.compilation import chips
from tpuserve.compilation.compile_report import Compilation, LatencyPick


def pick_for_latency(compilations: Sequence[Compilation], goal_seconds: float) -> LatencyPick:
    """Pick the smallest chip that meets a latency goal at any batch size.

    The batch size is the largest one at which this chip meets the goal. A compilation is ignored if
    the compiler has no time estimate for some of its operations.

    Args:
      goal_seconds: The longest acceptable time of a batch, in seconds.
    """
    within = [
        compilation
        for compilation in compilations
        if compilation.stats is not None
        and not compilation.stats.untimed_operations
        and compilation.stats.seconds <= goal_seconds
    ]
    by_size = chips.sort_by_size(list({compilation.topology.name for compilation in within}))
    if not by_size:
        return LatencyPick(goal_seconds, None)
    candidates = [compilation for compilation in within if compilation.topology.name == by_size[0]]
    return LatencyPick(
        goal_seconds, max(candidates, key=lambda compilation: compilation.batch_size)
    )
