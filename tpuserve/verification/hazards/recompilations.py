"""Shapes that a signature leaves open, and so the compilations that requests wait for."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.verification.hazards.node_placement import PlacedNode
from tpuserve.verification.report import Hazard

Sizes = tuple[int, ...]


def find_recompilations(
    placed: Mapping[str, Sequence[PlacedNode]],
    signatures: Mapping[str, Signature],
    allowed_batch_sizes: Sequence[int],
    warm_up: Sequence[WarmUpRecord],
) -> Iterator[Hazard]:
    """The open shapes of what runs on the TPU; signatures of which the same is true, together.

    Args:
      placed: signature name → what it runs.
      signatures: those to look at.
      allowed_batch_sizes: of the metagraph's batch functions; empty without them.
      warm_up: the requests of the warm-up file; none without it.
    """
    by_warm_sizes: dict[Sizes, list[str]] = defaultdict(list)
    for name, signature in signatures.items():
        if not any(each.on_tpu for each in placed.get(name, ())):
            continue
        yield from _beside_the_batch(name, signature)
        if any(each.shape and each.shape[0] is None for each in signature.inputs.values()):
            by_warm_sizes[_sizes(warm_up, name)].append(name)
    for warm, names in by_warm_sizes.items():
        yield _of_batches(names, tuple(allowed_batch_sizes), warm)


def _beside_the_batch(name: str, signature: Signature) -> Iterator[Hazard]:
    shapes = {alias: each.shape for alias, each in signature.inputs.items()}
    found = [
        f"dimension {position} of {alias!r}"
        for alias, shape in shapes.items()
        for position, size in enumerate(shape or ())
        if size is None and position > 0
    ]
    found += [f"the rank of {alias!r}" for alias, shape in shapes.items() if shape is None]
    if found:
        yield Hazard(
            "recompilation",
            "warning",
            f"signature {name!r} leaves open {', '.join(found)}: a TPU compiles once for each size "
            f"that it meets, and a request waits for it. Pad to a fixed size.",
        )


def _of_batches(names: Sequence[str], allowed: Sizes, warm: Sizes) -> Hazard:
    several = len(names) > 1
    who = f"signature{'s' if several else ''} {', '.join(map(repr, names))}"
    if allowed:
        cold = [each for each in allowed if each not in warm]
        text = (
            f"{who} {'are' if several else 'is'} compiled for batch sizes {_show(allowed)}: one "
            f"compilation each"
        )
        if not cold:
            return Hazard("recompilation", "note", f"{text}, which the warm-up file asks for.")
        if not warm:
            return Hazard("recompilation", "note", f"{text}. Export with a warm-up file.")
        return Hazard(
            "recompilation",
            "note",
            f"{text}. The warm-up file leaves out {_show(cold)}: give it these too.",
        )
    takes = f"{who} take{'' if several else 's'} any number of rows"
    if not warm:
        return Hazard(
            "recompilation",
            "warning",
            f"{takes}: a TPU compiles once for each number that it meets, and a request waits for "
            f"it. Batch to allowed_batch_sizes, and export with a warm-up file.",
        )
    return Hazard(
        "recompilation",
        "warning",
        f"{takes}, and the warm-up file has {_show(warm)}: a TPU compiles once for each other "
        f"number that it meets, and a request waits for it. Batch to allowed_batch_sizes.",
    )


def _sizes(warm_up: Sequence[WarmUpRecord], name: str) -> Sizes:
    """The batch sizes of a signature's warm-up requests, increasing."""
    found = {
        each.shape[0]
        for record in warm_up
        if record.signature_name == name
        for each in record.inputs.values()
        if each.shape
    }
    return tuple(sorted(each for each in found if each is not None))


def _show(sizes: Iterable[int]) -> str:
    return ", ".join(map(str, sizes))
