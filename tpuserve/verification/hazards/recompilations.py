"""Finds signatures with unknown dimensions, for which a TPU recompiles at each new input size."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.verification.hazards.node_placement import PlacedNode
from tpuserve.verification.verification_report import Hazard

Sizes = tuple[int, ...]

# The allowed_batch_sizes that a message proposes if the SavedModel has none. They are the default
# batch sizes of `tpuserve compile`.
_USUAL_SIZES = (1, 8, 64)


def find_recompilations(
    placed: Mapping[str, Sequence[PlacedNode]],
    signatures: Mapping[str, Signature],
    allowed_batch_sizes: Sequence[int],
    warm_up: Sequence[WarmUpRecord],
) -> Iterator[Hazard]:
    """Find the signatures that run on the TPU and have inputs with unknown dimensions.

    A TPU compiles the model again for each new size of these dimensions.

    Args:
      allowed_batch_sizes: The allowed_batch_sizes of the BatchFunction ops of the SavedModel; empty
        if there are none.
      warm_up: The records of the warm-up file; empty without the file.
    """
    by_warm_sizes: dict[Sizes, list[str]] = defaultdict(list)
    for name, signature in signatures.items():
        if not any(node.on_tpu for node in placed.get(name, ())):
            continue
        yield from _find_open_dimensions(name, signature)
        if any(spec.shape and spec.shape[0] is None for spec in signature.inputs.values()):
            by_warm_sizes[_warm_up_sizes(warm_up, name)].append(name)
    for warm_sizes, names in by_warm_sizes.items():
        yield _batch_size_hazard(names, tuple(allowed_batch_sizes), warm_sizes)


def _find_open_dimensions(name: str, signature: Signature) -> Iterator[Hazard]:
    """Report inputs with an unknown rank, or with an unknown dimension other than the first."""
    shapes = {alias: spec.shape for alias, spec in signature.inputs.items()}
    open_parts = [
        f"dimension {position} of {alias!r}"
        for alias, shape in shapes.items()
        for position, size in enumerate(shape or ())
        if size is None and position > 0
    ]
    open_parts += [f"the rank of {alias!r}" for alias, shape in shapes.items() if shape is None]
    if open_parts:
        yield Hazard(
            "recompilation",
            "warning",
            f"signature {name!r} leaves open {', '.join(open_parts)}: a TPU recompiles for every "
            f"new size, and that request waits. Pad to a fixed size.",
        )


def _batch_size_hazard(names: Sequence[str], allowed: Sizes, warm_sizes: Sizes) -> Hazard:
    """Return a hazard about the compilations of signatures for different batch sizes."""
    several = len(names) > 1
    subject = f"signature{'s' if several else ''} {', '.join(map(repr, names))}"
    if allowed:
        cold = [size for size in allowed if size not in warm_sizes]
        text = (
            f"{subject} {'are' if several else 'is'} compiled for batch sizes "
            f"{_format_sizes(allowed)}: one compilation each"
        )
        if not cold:
            return Hazard("recompilation", "note", f"{text}, all of them during warm-up.")
        if not warm_sizes:
            return Hazard("recompilation", "note", f"{text}. Export with a warm-up file.")
        return Hazard(
            "recompilation",
            "note",
            f"{text}. The warm-up file lacks {_format_sizes(cold)}: add these sizes.",
        )
    accepts = f"{subject} accept{'' if several else 's'} any batch size"
    if not warm_sizes:
        return Hazard(
            "recompilation",
            "warning",
            f"{accepts}: a TPU recompiles for every new size, and that request waits. Batch to "
            f"allowed_batch_sizes, and export with a warm-up file: warm_up=True, "
            f"{_batch_config(_USUAL_SIZES)}.",
        )
    return Hazard(
        "recompilation",
        "warning",
        f"{accepts}, and the warm-up file has {_format_sizes(warm_sizes)}: a TPU recompiles for "
        f"every other size, and that request waits. Batch to allowed_batch_sizes: "
        f"{_batch_config(warm_sizes)}.",
    )


def _batch_config(sizes: Sizes) -> str:
    """Return Python code for the argument batch_config of an export, to show in a message."""
    return (
        f"batch_config=BatchConfig(num_batch_threads=2, max_batch_size={sizes[-1]}, "
        f"batch_timeout_micros=2000, allowed_batch_sizes={list(sizes)})"
    )


def _warm_up_sizes(warm_up: Sequence[WarmUpRecord], name: str) -> Sizes:
    """Return the batch sizes of a signature's warm-up records in increasing order."""
    sizes = {
        spec.shape[0]
        for record in warm_up
        if record.signature_name == name
        for spec in record.inputs.values()
        if spec.shape
    }
    return tuple(sorted(size for size in sizes if size is not None))


def _format_sizes(sizes: Iterable[int]) -> str:
    return ", ".join(map(str, sizes))
