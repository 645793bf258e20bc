"""Reads and loads the {serve} and {serve, tpu} metagraphs, which a verification compares."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from tpuserve import tags as tag_sets
from tpuserve.devices import TpuSystem
from tpuserve.errors import (
    DamagedSavedModel,
    LoweringError,
    MetagraphNotFound,
    SignatureNotFound,
    TpuserveError,
    UnsupportedModel,
)
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.saved_model import batch_functions, metagraph, op_imports
from tpuserve.saved_model.metagraph import Metagraph
from tpuserve.saved_model.saved_model_message import meta_graph_defs, read_saved_model_message
from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.summary import convert_command
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.tags import TagSet

Shape: TypeAlias = tuple[int | None, ...] | None

# Tag set of a metagraph → the hardware for which it is loaded: no TPU for {serve}; for {serve, tpu}
# an emulated TPU with one core, so that the graph is lowered to the CPU.
_SYSTEMS: Mapping[TagSet, TpuSystem] = {
    tag_sets.SERVE: TpuSystem(),
    tag_sets.SERVE_TPU: TpuSystem(
        tpu_cores=1, hosts=1, is_emulated=True, asked_by="tpuserve verify"
    ),
}


@dataclass(frozen=True)
class MetaGraphSide:
    """One of the two metagraphs that a verification compares."""

    description: Metagraph
    meta_graph_def: Any


@dataclass(frozen=True)
class MetaGraphPair:
    """The two metagraphs of a SavedModel that a verification compares; they are not loaded."""

    directory: Path
    baseline: MetaGraphSide
    candidate: MetaGraphSide
    warm_up: tuple[WarmUpRecord, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the report about surprising properties of the metagraphs.

        There is one such property: the {serve} metagraph has TPU computations too.
        """
        if not self.baseline.description.has_tpu_computation:
            return ()
        return (
            "{serve} has TPU computations too. The baseline runs them op by op on the CPU, and the "
            "candidate compiles them by XLA.",
        )

    @property
    def allowed_batch_sizes(self) -> tuple[int, ...]:
        """The allowed_batch_sizes of all BatchFunction ops in increasing order; may be empty."""
        sizes = {
            size
            for side in (self.baseline, self.candidate)
            for size in batch_functions.allowed_batch_sizes(side.meta_graph_def.graph_def)
        }
        return tuple(sorted(sizes))

    def signatures(self, names: tuple[str, ...]) -> dict[str, Signature]:
        """Return signatures by name, sorted by name.

        If both metagraphs have a signature of the same name, that of {serve} is returned.
        """
        in_candidate = self.candidate.description.signatures
        available = dict(sorted({**in_candidate, **self.baseline.description.signatures}.items()))
        for name in names:
            if name not in available:
                raise SignatureNotFound(
                    f"no signature {name!r} in {self.directory}; found "
                    f"{', '.join(available) or 'none'}. Use one of those names."
                )
        return {
            name: signature for name, signature in available.items() if not names or name in names
        }


def read_metagraph_pair(directory: Path) -> MetaGraphPair:
    """Read both metagraphs of a SavedModel without loading them."""
    saved_model = metagraph.read_saved_model(directory)
    described = {description.tags: description for description in saved_model.metagraphs}
    for tags in _SYSTEMS:
        if tags not in described:
            available = ", ".join(sorted(map(tag_sets.format_tags, described)))
            raise MetagraphNotFound(
                f"{directory} has no metagraph tagged {tag_sets.format_tags(tags)}; found "
                f"{available}. Verification compares {{serve}} with {{serve, tpu}}: "
                f"{_advise(directory, described)}"
            )
    protos = meta_graph_defs(read_saved_model_message(directory))
    op_imports.import_packages_of(protos.values(), directory)
    baseline, candidate = (MetaGraphSide(described[tags], protos[tags]) for tags in _SYSTEMS)
    return MetaGraphPair(directory, baseline, candidate, saved_model.warm_up)


def _advise(directory: Path, available: Collection[TagSet]) -> str:
    """Return how to create the missing metagraph of a SavedModel, for an error message."""
    exporting = "export with export_to_cpu=True and export_to_tpu=True."
    if tag_sets.SERVE_TPU in available:
        return exporting
    return f"{exporting[:-1]}, or run: {convert_command(directory, available)}"


def load_baseline(directory: Path) -> LoadedModel:
    """Load the {serve} metagraph on the CPU."""
    return _load_metagraph(directory, tag_sets.SERVE)


def load_candidate(directory: Path) -> LoadedModel | TpuserveError:
    """Load the {serve, tpu} metagraph, lowered to the CPU and compiled by XLA.

    Returns:
      The loaded model. If the metagraph cannot be lowered to the CPU, or has a StableHLO module
      that does not run on the CPU, the error is returned and not raised.
    """
    try:
        return _load_metagraph(directory, tag_sets.SERVE_TPU)
    except (LoweringError, UnsupportedModel) as error:
        return error


def _load_metagraph(directory: Path, tags: TagSet) -> LoadedModel:
    try:
        return loader.load(directory, tags, _SYSTEMS[tags])
    except (DecodeError, TypeError, AttributeError, LookupError) as error:
        # TensorFlow raises errors such as TypeError and KeyError if a graph is inconsistent. Report
        # that the SavedModel is damaged.
        raise DamagedSavedModel(
            f"cannot load {tag_sets.format_tags(tags)} of {directory}: {error}. Export the "
            f"model again."
        ) from error


def describe_difference(name: str, pair: MetaGraphPair) -> str | None:
    """Describe how the inputs or outputs of a signature differ between the two metagraphs.

    Such a signature cannot be compared. If there is no difference, return None.
    """
    baseline = pair.baseline.description.signatures.get(name)
    candidate = pair.candidate.description.signatures.get(name)
    if baseline is None or candidate is None:
        side = "baseline {serve}" if baseline is None else "candidate {serve, tpu}"
        return f"the {side} has no such signature"
    kinds: tuple[tuple[str, Callable[[Signature], Mapping[str, Any]]], ...] = (
        ("input", lambda signature: signature.inputs),
        ("output", lambda signature: signature.outputs),
    )
    for kind, get_specs in kinds:
        in_baseline, in_candidate = get_specs(baseline), get_specs(candidate)
        for alias in sorted({*in_baseline, *in_candidate}):
            if alias not in in_baseline or alias not in in_candidate:
                side = "candidate {serve, tpu}" if alias in in_baseline else "baseline {serve}"
                return f"the {side} has no {kind} {alias!r}"
            first, second = in_baseline[alias], in_candidate[alias]
            if first.dtype != second.dtype:
                return (
                    f"{kind} {alias!r} is {first.dtype} in the baseline, "
                    f"{second.dtype} in the candidate"
                )
            if not _are_compatible(first.shape, second.shape):
                return f"{kind} {alias!r} is {first} in the baseline, {second} in the candidate"
    return None


def _are_compatible(first: Shape, second: Shape) -> bool:
    if first is None or second is None:
        return True
    return len(first) == len(second) and all(
        size is None or other_size is None or size == other_size
        for size, other_size in zip(first, second, strict=True)
    )
