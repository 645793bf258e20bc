"""Selects the metagraph to run, the device, and the runtime, and states the reasons."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from tpuserve import tags as tag_sets
from tpuserve.devices import TpuSystem
from tpuserve.errors import MetagraphNotFound, TpuNotFound
from tpuserve.tags import TagSet

DEFAULT_RUNTIME = "session"
PJRT_RUNTIME = "pjrt"
XLA_RUNTIME = "xla"


@dataclass(frozen=True)
class MetaGraphSelection:
    """A metagraph, the device, and the runtime that runs it there.

    Attributes:
      tags: the tag set of the metagraph.
      device: "CPU" or "TPU".
      lowered: whether TPU ops are first replaced by ops with CPU kernels.
      reason: why this metagraph and this device were selected.
      compiled: whether XLA compiles the lowered computations.
      fallback: a sentence that says which selection was preferred and why it was not possible;
        empty if this selection is the preferred one.
      runtime: the name of the runtime in `tpuserve.runtime.registry`.
      runtime_reason: why this runtime was selected.
    """

    tags: TagSet
    device: str
    lowered: bool
    reason: str
    compiled: bool = True
    fallback: str = ""
    runtime: str = DEFAULT_RUNTIME
    runtime_reason: str = "by default"

    def __str__(self) -> str:
        how = ""
        if self.lowered:
            how = " through XLA" if self.compiled else " op by op"
        if self.runtime != DEFAULT_RUNTIME:
            how += f" with the {self.runtime} runtime, {self.runtime_reason}"
        return f"{tag_sets.format_tags(self.tags)} on {self.device}{how} ({self.reason})"


def select_metagraph(
    available: Collection[TagSet],
    requested: TagSet | None,
    hardware: TpuSystem,
    *,
    where: str,
    fallback_to_cpu: bool = False,
    runtime: str | None = None,
) -> MetaGraphSelection:
    """Select one of the metagraphs of a SavedModel, the device, and the runtime.

    Tag sets match exactly, as in TensorFlow Serving. Without a requested tag set, a machine with
    a TPU, real or emulated, runs {serve, tpu}, and any other machine runs {serve}.

    Args:
      available: the tag sets of the SavedModel.
      requested: the requested tag set; None leaves the selection to the hardware.
      hardware: the TPU system of this machine.
      where: the directory of the SavedModel, for error messages.
      fallback_to_cpu: whether to select {serve} on the CPU if the other metagraph does not exist,
        or needs a TPU that this machine does not have.
      runtime: the requested runtime; None selects the default runtime.

    Raises:
      MetagraphNotFound: no metagraph has exactly the tags.
      TpuNotFound: the metagraph needs a TPU, and the machine has neither a real nor an emulated
        TPU.
    """
    try:
        selection = _select(available, requested, hardware, where)
    except (MetagraphNotFound, TpuNotFound) as error:
        if not fallback_to_cpu or tag_sets.SERVE not in available:
            raise
        serve = tag_sets.format_tags(tag_sets.SERVE)
        selection = MetaGraphSelection(
            tag_sets.SERVE,
            "CPU",
            lowered=False,
            reason=f"fallback; {hardware}",
            fallback=f"serving {serve} on the CPU instead: {error}",
        )
    if runtime is None or (runtime == XLA_RUNTIME and "tpu" in selection.tags):
        # XLA compiles a TPU metagraph in any case, on its own runtime.
        return selection
    return dataclasses.replace(selection, runtime=runtime, runtime_reason="asked for")


def check_tags(
    available: Collection[TagSet],
    requested: TagSet | None,
    emulated: TpuSystem | None,
    *,
    where: str,
    fallback_to_cpu: bool = False,
) -> None:
    """Check that `select_metagraph` can find a metagraph, before TensorFlow looks for a real TPU.

    Args:
      available: the tag sets of the SavedModel.
      requested: the requested tag set; None leaves the selection to the hardware.
      emulated: the emulated TPU system; None without emulation, when the machine may or may not
        have a real TPU.
      where: the directory of the SavedModel, for error messages.
      fallback_to_cpu: see `select_metagraph`.

    Raises:
      MetagraphNotFound: `select_metagraph` would find no metagraph, whether or not the machine
        has a TPU.
    """
    possible = (TpuSystem(tpu_cores=1, hosts=1), TpuSystem()) if emulated is None else (emulated,)
    for hardware in possible:
        try:
            select_metagraph(
                available, requested, hardware, where=where, fallback_to_cpu=fallback_to_cpu
            )
        except MetagraphNotFound as error:
            failure = error
        else:
            return
    raise failure


def _select(
    available: Collection[TagSet], requested: TagSet | None, hardware: TpuSystem, where: str
) -> MetaGraphSelection:
    """Select a metagraph, a device and the default runtime, without a fallback to the CPU."""
    if requested is not None:
        tags, chosen_by = requested, "asked for"
    elif hardware.has_tpu:
        tags, chosen_by = tag_sets.SERVE_TPU, "by default"
    else:
        tags, chosen_by = tag_sets.SERVE, "by default"
    if tags not in available:
        names = ", ".join(sorted(tag_sets.format_tags(tag_set) for tag_set in available))
        raise MetagraphNotFound(
            f"no metagraph tagged {tag_sets.format_tags(tags)} ({chosen_by}) in {where}; "
            f"found {names or 'none'}. Export with those tags, or ask for a tag set that is there."
        )
    reason = f"{chosen_by}; {hardware}"
    if "tpu" not in tags:
        return MetaGraphSelection(tags, "CPU", lowered=False, reason=reason)
    if not hardware.has_tpu:
        raise TpuNotFound(
            f"metagraph {tag_sets.format_tags(tags)} of {where} needs a TPU; {hardware}. Set "
            f"TPUSERVE_EMULATED_TPU=1 to run it lowered to the CPU, or ask for {{serve}}."
        )
    if hardware.pjrt_platform:
        return MetaGraphSelection(
            tags,
            hardware.pjrt_platform.upper(),
            lowered=False,
            reason=reason,
            runtime=PJRT_RUNTIME,
            runtime_reason="which runs PJRT devices",
        )
    device = "CPU" if hardware.is_emulated else "TPU"
    return MetaGraphSelection(tags, device, hardware.is_emulated, reason, hardware.is_compiled)
