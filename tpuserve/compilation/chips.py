"""The generations of TPUs: what a chip has, as published.

Source: the "System architecture" pages of the Cloud TPU documentation, one for each generation:
peak compute in bfloat16 a chip, HBM capacity and bandwidth a chip.
"""

import math
import re
from dataclasses import dataclass

_GB = 10**9
_TERA = 10**12


@dataclass(frozen=True)
class TpuGeneration:
    """One generation.

    Attributes:
      generation: its name in a topology, "v5e".
      topology: one of it that every libtpu compiles for.
      hbm_bytes: capacity of a chip's memory.
      hbm_bytes_per_second: bandwidth of a chip's memory.
      peak_flops: bfloat16 operations a second of a chip.
    """

    generation: str
    topology: str
    hbm_bytes: int
    hbm_bytes_per_second: float
    peak_flops: float


GENERATIONS: tuple[TpuGeneration, ...] = (
    TpuGeneration("v2", "v2:2x2", 16 * _GB, 700 * _GB, 46 * _TERA),
    TpuGeneration("v3", "v3:2x2", 32 * _GB, 900 * _GB, 123 * _TERA),
    TpuGeneration("v4", "v4:2x2x1", 32 * _GB, 1200 * _GB, 275 * _TERA),
    TpuGeneration("v5e", "v5e:1x1", 16 * _GB, 819 * _GB, 197 * _TERA),
    TpuGeneration("v5p", "v5p:2x2x1", 95 * _GB, 2765 * _GB, 459 * _TERA),
    TpuGeneration("v6e", "v6e:1x1", 32 * _GB, 1640 * _GB, 918 * _TERA),
    TpuGeneration("tpu7x", "tpu7x:2x2x1", 192 * _GB, 7380 * _GB, 2307 * _TERA),
)

DEFAULT_TOPOLOGIES = tuple(each.topology for each in GENERATIONS)


def find_generation(name: str) -> TpuGeneration | None:
    """The generation of a topology; None for one that is not in the list."""
    generation = name.partition(":")[0]
    return next((each for each in GENERATIONS if each.generation == generation), None)


def sort_by_size(topologies: list[str]) -> list[str]:
    """Topologies whose generation is known: least memory first, then compute, then chips."""
    known = [(chip, each) for each in topologies if (chip := find_generation(each)) is not None]
    known.sort(
        key=lambda pair: (pair[0].hbm_bytes, pair[0].peak_flops, count_chips(pair[1]), pair[1])
    )
    return [each for _, each in known]


def count_chips(topology: str) -> int:
    """Return how many chips a topology has."""
    return math.prod(map(int, re.findall(r"\d+", topology.partition(":")[2])))
