"""Selects the metagraph of a SavedModel to run, its device and its runtime, with the reasons."""

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

BY_DEFAULT = "by default"
"""The reason for a selection that was not requested."""

# The reason why a TPU graph does not run in the requested runtime "xla".
_NOT_XLA = "because the xla runtime, asked for, runs only CPU graphs and this is a TPU graph"
# The TPU system that `check_tags` assumes, if it does not know whether the machine has a TPU.
_SOME_TPU = TpuSystem(tpu_cores=1, hosts=1)


@dataclass(frozen=True)
class MetaGraphSelection:
    """The metagraph to run, the device, and the runtime that runs the metagraph on the device.

    Attributes:
      fallback: a sentence that says which selection was preferred and why it was not possible;
        empty if the preferred selection was possible.
    """

    tags: TagSet
    device: str
    lowered: bool
    reason: str
    is_tpu_graph: bool = False
    compiled: bool = True
    fallback: str = ""
    runtime: str = DEFAULT_RUNTIME
    runtime_reason: str = BY_DEFAULT

    def __str__(self) -> str:
        """Describe the selection in one line.

        The runtime is left out if it is the default runtime and was selected by default.
        """
        how = ""
        if self.lowered:
            how = " through XLA" if self.compiled else " op by op"
        if (self.runtime, self.runtime_reason) != (DEFAULT_RUNTIME, BY_DEFAULT):
            how += f" with the {self.runtime} runtime, {self.runtime_reason}"
        return f"{tag_sets.format_tags(self.tags)} on {self.device}{how} ({self.reason})"


def select_metagraph(
    available: Collection[TagSet],
    requested: TagSet | None,
    hardware: TpuSystem,
    *,
    where: str,
    untagged_tpu_graphs: Collection[TagSet] = (),
    fallback_to_cpu: bool = False,
    runtime: str | None = None,
) -> MetaGraphSelection:
    """Select one of the metagraphs of a SavedModel, the device, and the runtime.

    A requested tag set must match exactly, as in TensorFlow Serving.

    A {serve} metagraph can have TPU computations, because some exporters save one graph under both
    tag sets.

    Raises:
      TpuNotFound: the metagraph needs a TPU, and the machine has neither a real nor an emulated
        TPU.
    """
    try:
        selection = _select(available, requested, hardware, where, untagged_tpu_graphs)
    except (MetagraphNotFound, TpuNotFound) as error:
        if not fallback_to_cpu or tag_sets.SERVE not in available:
            raise
        serve = tag_sets.format_tags(tag_sets.SERVE)
        selection = dataclasses.replace(
            _select_on_cpu(
                tag_sets.SERVE, f"fallback; {hardware}", tag_sets.SERVE in untagged_tpu_graphs
            ),
            fallback=f"serving {serve} on the CPU instead: {error}",
        )
    if runtime is None:
        return selection
    if runtime == XLA_RUNTIME and selection.is_tpu_graph:
        # The runtime "xla" runs only CPU graphs, so the default runtime runs this TPU graph.
        return dataclasses.replace(
            selection,
            compiled=selection.compiled or not hardware.has_tpu,
            runtime_reason=_NOT_XLA,
        )
    return dataclasses.replace(selection, runtime=runtime, runtime_reason="asked for")


def check_tags(
    available: Collection[TagSet],
    requested: TagSet | None,
    emulated: TpuSystem | None,
    *,
    where: str,
    untagged_tpu_graphs: Collection[TagSet] = (),
    fallback_to_cpu: bool = False,
) -> None:
    """Check that `select_metagraph` can find a metagraph, without looking for a real TPU.

    So a missing metagraph is reported before the import of TensorFlow, which is slow and is needed
    to find a real TPU.

    Args:
      requested: the requested tag set; None leaves the selection to the hardware.
      emulated: the emulated TPU system. None without emulation: the function then checks both the
        selection with a TPU and the selection without one.
    """
    possible = (_SOME_TPU, TpuSystem()) if emulated is None else (emulated,)
    for hardware in possible:
        try:
            select_metagraph(
                available,
                requested,
                hardware,
                where=where,
                untagged_tpu_graphs=untagged_tpu_graphs,
                fallback_to_cpu=fallback_to_cpu,
            )
        except MetagraphNotFound as error:
            failure = error
        else:
            return
    raise failure


def _select(
    available: Collection[TagSet],
    requested: TagSet | None,
    hardware: TpuSystem,
    where: str,
    untagged_tpu_graphs: Collection[TagSet],
) -> MetaGraphSelection:
    """Select the preferred metagraph and device, with the default runtime of the device."""
    if requested is not None:
        tags, chosen_by = requested, "asked for"
    elif hardware.has_tpu and _is_best_on_tpu(available, untagged_tpu_graphs):
        tags, chosen_by = tag_sets.SERVE_TPU, BY_DEFAULT
    else:
        tags, chosen_by = tag_sets.SERVE, BY_DEFAULT
    if tags not in available:
        raise MetagraphNotFound(_why_not_found(tags, chosen_by, available, where))
    reason = f"{chosen_by}; {hardware}"
    is_untagged = tags in untagged_tpu_graphs
    if tag_sets.TPU not in tags and not (is_untagged and hardware.has_tpu):
        return _select_on_cpu(tags, reason, is_untagged)
    if not hardware.has_tpu:
        raise TpuNotFound(
            f"metagraph {tag_sets.format_tags(tags)} of {where} needs a TPU; {hardware}. Set "
            f"TPUSERVE_EMULATED_TPU=1 to run it lowered to the CPU, or ask for {{serve}}."
        )
    on_pjrt = bool(hardware.pjrt_platform)
    return MetaGraphSelection(
        tags,
        hardware.device,
        lowered=hardware.is_emulated,
        reason=reason,
        is_tpu_graph=True,
        compiled=hardware.is_compiled,
        runtime=PJRT_RUNTIME if on_pjrt else DEFAULT_RUNTIME,
        runtime_reason="which runs PJRT devices" if on_pjrt else BY_DEFAULT,
    )


def _is_best_on_tpu(available: Collection[TagSet], untagged_tpu_graphs: Collection[TagSet]) -> bool:
    return tag_sets.SERVE_TPU in available or tag_sets.SERVE not in untagged_tpu_graphs


def _select_on_cpu(tags: TagSet, reason: str, has_tpu_computation: bool) -> MetaGraphSelection:
    if not has_tpu_computation:
        return MetaGraphSelection(tags, "CPU", lowered=False, reason=reason)
    return MetaGraphSelection(
        tags,
        "CPU",
        lowered=True,
        reason=f"{reason}; its TPU computations are lowered",
        is_tpu_graph=True,
        compiled=False,
    )


def _why_not_found(tags: TagSet, chosen_by: str, available: Collection[TagSet], where: str) -> str:
    """Return the error message for a tag set that no metagraph of the SavedModel has."""
    names = ", ".join(sorted(map(tag_sets.format_tags, available)))
    flags = " or ".join(
        f"--saved_model_tags={','.join(sorted(tags))}" for tags in sorted(available, key=sorted)
    )
    return (
        f"no metagraph tagged {tag_sets.format_tags(tags)} ({chosen_by}) in {where}; "
        f"found {names or 'none'}. Export with those tags, or ask for a tag set that is there"
        f"{f' (of a server: {flags})' if flags else ''}."
    )
