"""Converts names of TPU topologies to libtpu's notation.

A user may name a topology in libtpu's notation ("v5e:2x2"), by an accelerator type of Cloud TPU
("v5litepod-4"), or by the generation only ("v5e").
"""

from dataclasses import dataclass

from tpuserve.compilation import chips
from tpuserve.compilation.chips import TpuGeneration
from tpuserve.errors import InvalidSetting

_PLANE = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBE = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4")
_SHAPES = {
    "v2": ("2x2",),
    "v3": ("2x2",),
    "v4": _CUBE,
    "v5e": _PLANE,
    "v5p": _CUBE,
    "v6e": _PLANE,
    "tpu7x": _CUBE,
}
# TPU generation → the prefix of its accelerator types in Cloud TPU, and a factor.
_CLOUD = {
    "v2": ("v2", 2),
    "v3": ("v3", 2),
    "v4": ("v4", 2),
    "v5e": ("v5litepod", 1),
    "v5p": ("v5p", 2),
    "v6e": ("v6e", 1),
}
# Incomplete name of a generation, such as "v5" → the generations that the user may mean.
_AMBIGUOUS = {"v5": ("v5e", "v5p"), "v6": ("v6e",), "v7": ("tpu7x",), "tpu7": ("tpu7x",)}
_SYNONYMS = {"v5litepod": "v5e", "v5lite": "v5e", "v7x": "tpu7x"}


@dataclass(frozen=True)
class NamedTopology:
    """A common TPU topology, as the table of `tpuserve compile --list-topologies` shows it.

    Attributes:
      name: the name for `--topology`, such as "v5e:2x2".
      cloud_name: the accelerator type of Cloud TPU, such as "v5litepod-4"; "" if it has none.
    """

    name: str
    cloud_name: str
    num_chips: int
    generation: TpuGeneration


def list_topologies() -> list[NamedTopology]:
    """Return the common TPU topologies, sorted by generation and then by size."""
    topologies = []
    for generation in chips.GENERATIONS:
        for shape in _SHAPES[generation.generation]:
            name = f"{generation.generation}:{shape}"
            count = chips.count_chips(name)
            cloud = _CLOUD.get(generation.generation)
            cloud_name = f"{cloud[0]}-{count * cloud[1]}" if cloud else ""
            topologies.append(NamedTopology(name, cloud_name, count, generation))
    return topologies


def find_topology(name: str) -> str | None:
    """Convert the name of a topology to libtpu's notation.

    The names "v5e" and "v5litepod-1" become "v5e:1x1". A name with a colon is in libtpu's notation
    already and is returned unchanged.

    Returns:
      None for an unknown name.

    Raises:
      InvalidSetting: the name is the incomplete name of a generation: "v5" may be v5e or v5p.
    """
    if ":" in name:
        return name
    short = name.lower()
    if short in _AMBIGUOUS:
        meant = _AMBIGUOUS[short]
        examples = " or ".join(
            generation.topology
            for generation in chips.GENERATIONS
            if generation.generation in meant
        )
        raise InvalidSetting(
            f"topology {name!r} names no generation of TPUs: {' or '.join(meant)} is meant. Give "
            f"{examples}; `tpuserve compile --list-topologies` lists more."
        )
    short = _SYNONYMS.get(short, short)
    for generation in chips.GENERATIONS:
        if short == generation.generation:
            return generation.topology
    return next(
        (topology.name for topology in list_topologies() if topology.cloud_name == short), None
    )
