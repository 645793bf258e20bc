"""Which metagraph runs, on what, and why: one choice, made here and said aloud."""

from collections.abc import Collection
from dataclasses import dataclass

from tpuserve import tags as tag_sets
from tpuserve.devices import TpuSystem
from tpuserve.errors import MetagraphNotFound, TpuNotFound
from tpuserve.tags import TagSet


@dataclass(frozen=True)
class MetaGraphSelection:
    """A metagraph and the device that runs it.

    Attributes:
      tags: the metagraph's tag set.
      device: "CPU" or "TPU".
      lowered: whether TPU ops are replaced by ops with CPU kernels first.
      reason: why this metagraph, why this device.
      compiled: whether XLA compiles what is lowered.
      fallback: a sentence on what was wanted where this is not it; empty where it is.
    """

    tags: TagSet
    device: str
    lowered: bool
    reason: str
    compiled: bool = True
    fallback: str = ""

    def __str__(self) -> str:
        through = (" through XLA" if self.compiled else " op by op") if self.lowered else ""
        return f"{tag_sets.format_tags(self.tags)} on {self.device}{through} ({self.reason})"


def select_metagraph(
    found: Collection[TagSet],
    wanted: TagSet | None,
    hardware: TpuSystem,
    *,
    where: str,
    fallback_to_cpu: bool = False,
) -> MetaGraphSelection:
    """The metagraph to load out of those found, and the device to run it on.

    Tag sets match exactly, as in TensorFlow Serving. With none wanted it is {serve, tpu} on a
    machine with a TPU, real or emulated, and {serve} on any other.

    Args:
      found: the tag sets of the SavedModel.
      wanted: the tag set that was asked for; None leaves the choice to the hardware.
      hardware: what this machine has.
      where: the SavedModel's directory, for error texts.
      fallback_to_cpu: whether to take {serve} on the CPU where the wanted metagraph is missing,
        or needs a TPU that is.

    Raises:
      MetagraphNotFound: no metagraph has just the wanted tags.
      TpuNotFound: the wanted metagraph needs a TPU, and there is none, real or emulated.
    """
    try:
        return _wanted(found, wanted, hardware, where)
    except (MetagraphNotFound, TpuNotFound) as error:
        if not fallback_to_cpu or tag_sets.SERVE not in found:
            raise
        return MetaGraphSelection(
            tag_sets.SERVE,
            "CPU",
            lowered=False,
            reason=f"fallback; {hardware}",
            fallback=f"serving {tag_sets.format_tags(tag_sets.SERVE)} on the CPU instead: {error}",
        )


def _wanted(
    found: Collection[TagSet], wanted: TagSet | None, hardware: TpuSystem, where: str
) -> MetaGraphSelection:
    if wanted is not None:
        tags, chosen_by = wanted, "asked for"
    elif hardware.has_tpu:
        tags, chosen_by = tag_sets.SERVE_TPU, "by default"
    else:
        tags, chosen_by = tag_sets.SERVE, "by default"
    if tags not in found:
        available = ", ".join(sorted(tag_sets.format_tags(each) for each in found)) or "none"
        raise MetagraphNotFound(
            f"no metagraph tagged {tag_sets.format_tags(tags)} ({chosen_by}) in {where}; "
            f"found {available}. Export with those tags, or ask for a tag set that is there."
        )
    if "tpu" not in tags:
        return MetaGraphSelection(tags, "CPU", lowered=False, reason=f"{chosen_by}; {hardware}")
    if not hardware.has_tpu:
        raise TpuNotFound(
            f"metagraph {tag_sets.format_tags(tags)} of {where} needs a TPU; {hardware}. Set "
            f"TPUSERVE_EMULATED_TPU=1 to run it lowered to the CPU, or ask for {{serve}}."
        )
    device = "CPU" if hardware.is_emulated else "TPU"
    reason = f"{chosen_by}; {hardware}"
    return MetaGraphSelection(tags, device, hardware.is_emulated, reason, hardware.is_compiled)
