"""The names of TPU topologies: libtpu's, those of Cloud TPU, and plain generations.

Source: the pages of the TPU generations in the Cloud TPU documentation. The number in a name of
v5litepod and v6e counts chips; in all others it counts cores, of which a chip has two.
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
# Generation → the prefix of its accelerator types in Cloud TPU, and the number in the type divided
# by the number of chips: "v4-8" has 4 chips (2), "v6e-8" has 8 (1).
_CLOUD = {
    "v2": ("v2", 2),
    "v3": ("v3", 2),
    "v4": ("v4", 2),
    "v5e": ("v5litepod", 1),
    "v5p": ("v5p", 2),
    "v6e": ("v6e", 1),
}
# Ambiguous name, such as "v5" → the generations that the user may mean.
_AMBIGUOUS = {"v5": ("v5e", "v5p"), "v6": ("v6e",), "v7": ("tpu7x",), "tpu7": ("tpu7x",)}
_SYNONYMS = {"v5litepod": "v5e", "v5lite": "v5e", "v7x": "tpu7x"}


@dataclass(frozen=True)
class NamedTopology:
    """A usual topology of a generation.

    Attributes:
      name: the name for `--topology`, such as "v5e:2x2".
      cloud_name: the accelerator type of Cloud TPU, such as "v5litepod-4"; "" if it has none.
      num_chips: the number of chips.
      generation: the generation, with the figures of a chip.
    """

    name: str
    cloud_name: str
    num_chips: int
    generation: TpuGeneration


def list_topologies() -> list[NamedTopology]:
    """Return the usual topologies, by generation and by size."""
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
    """Return the topology that a short name means: "v5e:1x1" for "v5e" and for "v5litepod-1".

    A name in libtpu's notation, with a colon, is returned as it is.

    Args:
      name: the name; letter case does not matter in a short name.

    Returns:
      The name of the topology; None for an unknown name.

    Raises:
      InvalidSetting: the name does not say which generation is meant.
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
