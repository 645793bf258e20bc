"""Recommends allowed batch sizes: those that pad an expected mix of request sizes the least."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class BucketPlan:
    """Recommended batch sizes, to which requests are padded.

    Attributes:
      batch_sizes: Numbers of rows, in increasing order.
      padding: Fraction of all computed rows that is padding, 0 to 1.
    """

    batch_sizes: tuple[int, ...]
    padding: float


def uniform_load(largest: int) -> dict[int, float]:
    """Return a request mix in which all sizes from one row to the largest are equally likely."""
    return dict.fromkeys(range(1, largest + 1), 1.0)


def choose_batch_buckets(
    load: Mapping[int, float], candidates: Sequence[int], most: int
) -> BucketPlan:
    """Choose the batch sizes that pad an expected mix of request sizes the least.

    A request is padded to the smallest chosen batch size that has at least as many rows. The
    batcher splits a request larger than all candidates into batches of the largest candidate and a
    remainder.

    Args:
      load: Rows of a request → its relative frequency.
      candidates: Batch sizes to choose from, in rows. The largest is always chosen.
      most: The largest number of batch sizes to choose.
    """
    sizes = sorted(set(candidates))
    split_load = _split_oversized(load, sizes[-1])

    @cache
    def best_plan(count: int, last: int) -> tuple[float, tuple[int, ...]]:
        """Choose batch sizes for requests of up to sizes[last] rows.

        Args:
          count: The largest number of batch sizes to choose.
          last: Index in `sizes` of the largest batch size to choose, which is always chosen.

        Returns:
          The number of rows computed, weighted by the load, and the chosen batch sizes.
        """
        size = sizes[last]
        plans: list[tuple[float, tuple[int, ...]]] = [(_padded_rows(split_load, 0, size), (size,))]
        if count > 1:
            for previous in range(last):
                rows, chosen = best_plan(count - 1, previous)
                rows += _padded_rows(split_load, sizes[previous], size)
                plans.append((rows, (*chosen, size)))
        # Among choices that compute equally many rows take the one with the fewest batch sizes,
        # because each batch size costs a compilation and the memory of a program.
        return min(plans, key=lambda plan: (plan[0], len(plan[1])))

    computed_rows, batch_sizes = best_plan(most, len(sizes) - 1)
    requested_rows = sum(rows * weight for rows, weight in split_load.items())
    padding = 1 - requested_rows / computed_rows if computed_rows else 0.0
    return BucketPlan(batch_sizes, padding)


def _split_oversized(load: Mapping[int, float], largest: int) -> dict[int, float]:
    """Split requests larger than the largest batch size; return rows of a batch → its weight."""
    split_load: dict[int, float] = {}
    for rows, weight in load.items():
        full_batches, remainder = divmod(rows, largest)
        for part, times in ((largest, full_batches), (remainder, 1)):
            if part and times:
                split_load[part] = split_load.get(part, 0.0) + weight * times
    return split_load


def _padded_rows(load: Mapping[int, float], above: int, size: int) -> float:
    """Return the weighted number of rows computed for requests of above < rows <= size.

    Each of these requests is padded to `size` rows. The weights are those of `load`.
    """
    return sum(weight * size for rows, weight in load.items() if above < rows <= size)
