"""The two metagraphs of a SavedModel, as they are compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from tensorflow.python.saved_model import loader_impl

from tpuserve import tags as tag_sets
from tpuserve.devices import TpuSystem
from tpuserve.errors import (
    DamagedSavedModel,
    LoweringError,
    MetagraphNotFound,
    SignatureNotFound,
)
from tpuserve.runtime import loader
from tpuserve.runtime.loader import LoadedModel
from tpuserve.saved_model import batch_functions, metagraph
from tpuserve.saved_model.metagraph import Metagraph
from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.tags import TagSet

Shape: TypeAlias = tuple[int | None, ...] | None

_HARDWARE: Mapping[TagSet, TpuSystem] = {
    tag_sets.SERVE: TpuSystem(),
    tag_sets.SERVE_TPU: TpuSystem(
        tpu_cores=1, hosts=1, is_emulated=True, asked_by="tpuserve verify"
    ),
}


@dataclass(frozen=True)
class MetaGraphSide:
    """One of the two metagraphs.

    Attributes:
      described: as read without TensorFlow.
      meta_graph_def: as TensorFlow's proto.
    """

    described: Metagraph
    meta_graph_def: Any


@dataclass(frozen=True)
class MetaGraphPair:
    """The baseline, which is {serve}, and the candidate, which is {serve, tpu}.

    Attributes:
      warm_up: the requests that a server runs before a model answers, whichever of the two it is.
    """

    directory: Path
    baseline: MetaGraphSide
    candidate: MetaGraphSide
    warm_up: tuple[WarmUpRecord, ...]

    @property
    def allowed_batch_sizes(self) -> tuple[int, ...]:
        """Of all batch functions together, increasing; empty where there are none."""
        found = {
            size
            for side in (self.baseline, self.candidate)
            for size in batch_functions.allowed_batch_sizes(side.meta_graph_def.graph_def)
        }
        return tuple(sorted(found))

    def signatures(self, wanted: tuple[str, ...]) -> dict[str, Signature]:
        """The baseline's signatures of some names, or all that there are.

        Raises:
          SignatureNotFound: a name that neither metagraph has.
        """
        of_candidate = self.candidate.described.signatures
        found = dict(sorted({**of_candidate, **self.baseline.described.signatures}.items()))
        for each in wanted:
            if each not in found:
                raise SignatureNotFound(
                    f"no signature {each!r} in {self.directory}; found "
                    f"{', '.join(found) or 'none'}. Name one of those."
                )
        return {name: each for name, each in found.items() if not wanted or name in wanted}


def read_metagraph_pair(directory: Path) -> MetaGraphPair:
    """The two metagraphs of a directory, unloaded.

    Raises:
      SavedModelNotFound, DamagedSavedModel: see `tpuserve.saved_model.metagraph.read_saved_model`.
      MetagraphNotFound: one of the two is not there.
    """
    saved_model = metagraph.read_saved_model(directory)
    described = {each.tags: each for each in saved_model.metagraphs}
    for tags in _HARDWARE:
        if tags not in described:
            found = ", ".join(sorted(tag_sets.format_tags(each) for each in described))
            raise MetagraphNotFound(
                f"{directory} has no metagraph tagged {tag_sets.format_tags(tags)}; found {found}. "
                f"Two are compared, {{serve}} and {{serve, tpu}}: export with export_to_cpu=True "
                f"and export_to_tpu=True."
            )
    try:
        proto = loader_impl.parse_saved_model(str(directory))
    except (OSError, DecodeError, ValueError) as error:
        raise DamagedSavedModel(
            f"TensorFlow cannot read {directory}: {error}. Export the model again."
        ) from error
    protos = {frozenset(each.meta_info_def.tags): each for each in proto.meta_graphs}
    baseline, candidate = (MetaGraphSide(described[each], protos[each]) for each in _HARDWARE)
    return MetaGraphPair(directory, baseline, candidate, saved_model.warm_up)


def load_baseline(directory: Path) -> LoadedModel:
    """The {serve} metagraph, on the CPU.

    Raises:
      DamagedSavedModel: it cannot be loaded.
    """
    return _load(directory, tag_sets.SERVE)


def load_candidate(directory: Path) -> LoadedModel | LoweringError:
    """The {serve, tpu} metagraph, lowered and compiled by XLA; or why it cannot be lowered.

    Raises:
      DamagedSavedModel: it cannot be loaded.
    """
    try:
        return _load(directory, tag_sets.SERVE_TPU)
    except LoweringError as error:
        return error


def _load(directory: Path, tags: TagSet) -> LoadedModel:
    try:
        return loader.load(directory, tags, _HARDWARE[tags])
    except (DecodeError, TypeError, AttributeError, LookupError) as error:
        # What TensorFlow trips over in a graph that contradicts itself.
        raise DamagedSavedModel(
            f"cannot load {tag_sets.format_tags(tags)} of {directory}: {error}. Export the "
            f"model again."
        ) from error


def describe_difference(name: str, both: MetaGraphPair) -> str | None:
    """How a signature is not the same in both metagraphs; None where it is."""
    baseline, candidate = (
        each.described.signatures.get(name) for each in (both.baseline, both.candidate)
    )
    if baseline is None or candidate is None:
        missing = "baseline {serve}" if baseline is None else "candidate {serve, tpu}"
        return f"the {missing} has no such signature"
    kinds: tuple[tuple[str, Callable[[Signature], Mapping[str, Any]]], ...] = (
        ("input", lambda each: each.inputs),
        ("output", lambda each: each.outputs),
    )
    for kind, of in kinds:
        first, second = of(baseline), of(candidate)
        for alias in sorted({*first, *second}):
            if alias not in first or alias not in second:
                where = "baseline {serve}" if alias not in first else "candidate {serve, tpu}"
                return f"the {where} has no {kind} {alias!r}"
            if first[alias].dtype != second[alias].dtype:
                return (
                    f"{kind} {alias!r} is {first[alias].dtype} in the baseline, "
                    f"{second[alias].dtype} in the candidate"
                )
            if not _are_compatible(first[alias].shape, second[alias].shape):
                return (
                    f"{kind} {alias!r} is {first[alias]} in the baseline, {second[alias]} in the "
                    f"candidate"
                )
    return None


def _are_compatible(first: Shape, second: Shape) -> bool:
    """Whether a tensor can have both shapes."""
    if first is None or second is None:
        return True
    return len(first) == len(second) and all(
        one is None or other is None or one == other
        for one, other in zip(first, second, strict=True)
    )
