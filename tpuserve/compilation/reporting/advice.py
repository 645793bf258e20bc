"""Recommends allowed_batch_sizes that need the least padding for an expected mix of requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class BucketPlan:
    """Recommended batch sizes, and the padding that they cause for an expected request mix.

    Attributes:
      padding: Fraction of all computed examples that is padding, 0 to 1.
    """

    batch_sizes: tuple[int, ...]
    padding: float


def uniform_load(largest: int) -> dict[int, float]:
    """Return a request mix in which all sizes from 1 example to the largest are equally likely."""
    return dict.fromkeys(range(1, largest + 1), 1.0)


def choose_batch_buckets(
    load: Mapping[int, float], candidates: Sequence[int], most: int
) -> BucketPlan:
    """Choose the batch sizes that pad an expected mix of request sizes the least.

    A request is padded to the smallest chosen batch size that has room for all of its examples.

    Args:
      load: Number of examples of a request → its relative frequency.
      candidates: Batch sizes to choose from. The largest is always chosen.
    """
    sizes = sorted(set(candidates))
    split_load = _split_oversized(load, sizes[-1])

    @cache
    def best_plan(count: int, last: int) -> tuple[float, tuple[int, ...]]:
        """Choose batch sizes for the requests of up to sizes[last] examples."""
        size = sizes[last]
        plans: list[tuple[float, tuple[int, ...]]] = [(_padded_rows(split_load, 0, size), (size,))]
        if count > 1:
            for previous in range(last):
                rows, chosen = best_plan(count - 1, previous)
                rows += _padded_rows(split_load, sizes[previous], size)
                plans.append((rows, (*chosen, size)))
        # If several choices need the same amount of padding, take the one with the fewest batch
        # sizes: each batch size costs a compilation and the memory of a program.
        return min(plans, key=lambda plan: (plan[0], len(plan[1])))

    computed_rows, batch_sizes = best_plan(most, len(sizes) - 1)
    requested_rows = sum(rows * weight for rows, weight in split_load.items())
    padding = 1 - requested_rows / computed_rows if computed_rows else 0.0
    return BucketPlan(batch_sizes, padding)


def _split_oversized(load: Mapping[int, float], largest: int) -> dict[int, float]:
    """Split the requests that are larger than the largest batch size, as a server does."""
    split_load: dict[int, float] = {}
    for rows, weight in load.items():
        full_batches, remainder = divmod(rows, largest)
        for part, times in ((largest, full_batches), (remainder, 1)):
            if part and times:
                split_load[part] = split_load.get(part, 0.0) + weight * times
    return split_load


def _padded_rows(load: Mapping[int, float], above: int, size: int) -> float:
    return sum(weight * size for rows, weight in load.items() if above < rows <= size)
