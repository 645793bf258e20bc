"""Which batch sizes to allow, and which chip to take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class BucketPlan:
    """Batch sizes that a load is padded to.

    Attributes:
      batch_sizes: in rows, increasing; the last one takes the largest request.
      padding: which part of all rows that are computed is padding, 0 to 1.
    """

    batch_sizes: tuple[int, ...]
    padding: float


def uniform_load(largest: int) -> dict[int, float]:
    """A load in which each number of rows up to the largest comes as often."""
    return dict.fromkeys(range(1, largest + 1), 1.0)


def choose_batch_buckets(
    load: Mapping[int, float], candidates: Sequence[int], most: int
) -> BucketPlan:
    """The batch sizes, out of some candidates and so many at most, that pad a load the least.

    A request is padded to the least size that takes it. Requests larger than all candidates are
    split by the batcher into batches of the largest, so they count as those and the rest.

    Args:
      load: rows of a request → how often it comes.
      candidates: in rows.
      most: how many sizes there may be.
    """
    sizes = sorted(set(candidates))
    counted = _split_oversized(load, sizes[-1])

    @cache
    def least(count: int, last: int) -> tuple[float, tuple[int, ...]]:
        """The rows computed for requests up to a size, and the sizes they are padded to."""
        size = sizes[last]
        found: list[tuple[float, tuple[int, ...]]] = [(_padded_rows(counted, 0, size), (size,))]
        if count > 1:
            for each in range(last):
                rows, chosen = least(count - 1, each)
                found.append((rows + _padded_rows(counted, sizes[each], size), (*chosen, size)))
        # Of equals the one of fewest sizes: each is a compilation, and a program in memory.
        return min(found, key=lambda each: (each[0], len(each[1])))

    computed, chosen = least(most, len(sizes) - 1)
    needed = sum(rows * weight for rows, weight in counted.items())
    return BucketPlan(chosen, 1 - needed / computed if computed else 0.0)


def _split_oversized(load: Mapping[int, float], largest: int) -> dict[int, float]:
    counted: dict[int, float] = {}
    for rows, weight in load.items():
        whole, rest = divmod(rows, largest)
        for part, times in ((largest, whole), (rest, 1)):
            if part and times:
                counted[part] = counted.get(part, 0.0) + weight * times
    return counted


def _padded_rows(load: Mapping[int, float], above: int, size: int) -> float:
    """The rows of all batches of a size that requests above another are padded to."""
    return sum(weight * size for rows, weight in load.items() if above < rows <= size)
