"""Lists the published figures of the TPU generations, such as memory and peak compute.

Source: the "System architecture" pages of the Cloud TPU documentation, one for each generation:
peak compute per chip in bfloat16, HBM capacity and HBM bandwidth per chip.
"""

import math
import re
from dataclasses import dataclass

_GB = 10**9
_TERA = 10**12


@dataclass(frozen=True)
class TpuGeneration:
    """A TPU generation and the published figures of its chip.

    Attributes:
      generation: Name of the generation: the beginning of the names of its topologies, such as
        "v5e" in "v5e:2x2".
      peak_flops: Largest number of bfloat16 operations that a chip can run per second.
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

DEFAULT_TOPOLOGIES = tuple(generation.topology for generation in GENERATIONS)


def find_generation(topology: str) -> TpuGeneration | None:
    """Return the generation of a topology such as "v5e:2x2"; None for an unknown generation."""
    name = topology.partition(":")[0]
    return next((known for known in GENERATIONS if known.generation == name), None)


def sort_by_size(topologies: list[str]) -> list[str]:
    """Sort topologies by a chip's memory, then a chip's peak compute, then the number of chips.

    Topologies of unknown generations are left out.
    """
    known = [
        (generation, topology)
        for topology in topologies
        if (generation := find_generation(topology)) is not None
    ]
    known.sort(
        key=lambda pair: (pair[0].hbm_bytes, pair[0].peak_flops, count_chips(pair[1]), pair[1])
    )
    return [topology for _, topology in known]


def count_chips(topology: str) -> int:
    """Return the number of chips of a topology: 4 for "v5e:2x2"."""
    return math.prod(map(int, re.findall(r"\d+", topology.partition(":")[2])))
