"""Collects the inputs on which a tool runs each signature: given, recorded or generated ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tpuserve import samples
from tpuserve.errors import InvalidInput
from tpuserve.graph import state_writes
from tpuserve.samples import input_casting, npz_inputs, warm_up_inputs
from tpuserve.saved_model.signature import Signature

Array = np.ndarray[Any, Any]
InputSource = Literal["file", "warm-up record", "generated"]

# The batch sizes of generated inputs if neither the user nor the model specifies any: a single
# example, and 8 examples, because a TPU's vector unit has 8 sublanes.
DEFAULT_BATCH_SIZES = (1, 8)


@dataclass(frozen=True)
class InputCase:
    """One set of inputs of a signature.

    Attributes:
      batch_size: Number of examples in the inputs; None if they have no batch dimension.
      make: Makes the inputs, alias → array. They are not kept, because they may be large.
    """

    shapes: Mapping[str, tuple[int, ...]]
    batch_size: int | None
    source: InputSource
    make: Callable[[], Mapping[str, Array]] = field(repr=False)


@dataclass(frozen=True)
class InputCases:
    """All sets of inputs of a verification.

    Attributes:
      notes: One sentence for each conversion of an input from the file or a warm-up record, and for
        each warm-up record that is ignored.
    """

    by_signature: Mapping[str, Sequence[InputCase]]
    notes: tuple[str, ...]


def collect_cases(
    directory: Path,
    meta_graph_def: Any,
    signatures: Mapping[str, Signature],
    *,
    available: Mapping[str, Signature],
    inputs: Path | None,
    batch_sizes: Sequence[int],
    allowed_batch_sizes: Sequence[int],
    seed: int = 0,
    open_dimension: int = samples.OPEN_DIMENSION,
) -> InputCases:
    """Collect the sets of inputs on which each signature runs.

    The inputs of a signature come from the file, if it has inputs for the signature.

    Args:
      available: All signatures of the SavedModel, by name. The file may have inputs for those that
        do not run.
      batch_sizes: The batch sizes that the user asked for.
      allowed_batch_sizes: The allowed_batch_sizes of the BatchFunction ops of the SavedModel; empty
        if there are none.

    Raises:
      InvalidInput: The file cannot be read, or an array in it does not fit the signatures.
      DamagedSavedModel: The warm-up file cannot be read.
    """
    from_file: dict[str, dict[str, Array]] = {}
    if inputs is not None:
        from_file = npz_inputs.assign_to_signatures(
            npz_inputs.read_npz(inputs), available, str(inputs)
        )
    notes: list[str] = []
    from_records = warm_up_inputs.read_warm_up_inputs(directory, signatures, notes)
    by_signature: dict[str, Sequence[InputCase]] = {}
    for name, signature in signatures.items():
        source: InputSource = "file" if name in from_file else "warm-up record"
        input_sets = [from_file[name]] if name in from_file else from_records.get(name, [])
        if not input_sets:
            sizes = batch_sizes or allowed_batch_sizes or DEFAULT_BATCH_SIZES
            by_signature[name] = _generate_cases(
                meta_graph_def, name, signature, sizes, seed, open_dimension
            )
            continue
        origin = str(inputs) if source == "file" else "warm-up record"
        cases = []
        for arrays in input_sets:
            converted, conversions = input_casting.cast_inputs(arrays, signature, origin)
            notes += [note for note in conversions if note not in notes]
            cases += _resize_cases(converted, signature, batch_sizes, source, origin)
        by_signature[name] = _first_of_each_size(cases) if batch_sizes else cases
    return InputCases(by_signature, tuple(notes))


def _generate_cases(
    meta_graph_def: Any,
    name: str,
    signature: Signature,
    sizes: Sequence[int],
    seed: int,
    open_dimension: int,
) -> list[InputCase]:
    batch_sizes: Sequence[int | None] = sizes
    if not samples.has_open_batch_size(meta_graph_def, name):
        shapes_of_specs = (spec.shape for spec in signature.inputs.values())
        batch_sizes = [next((shape[0] for shape in shapes_of_specs if shape), None)]
    cases = []
    for size in batch_sizes:
        shapes = samples.input_shapes(meta_graph_def, name, size or 1, open_dimension)
        make = partial(
            samples.generate_inputs, meta_graph_def, name, size or 1, seed=seed, shapes=shapes
        )
        cases.append(InputCase(shapes, size, "generated", make))
    return cases


def refuse_generated(signature: Signature, cases: Sequence[InputCase]) -> str | None:
    """Return why a signature must not run on some inputs: generated ones never write a file."""
    write = signature.write
    if write is None or write.kind != state_writes.FILE:
        return None
    if not any(case.source == "generated" for case in cases):
        return None
    return f"it {write}, so it does not run on generated inputs. Give inputs"


def _resize_cases(
    arrays: Mapping[str, Array],
    signature: Signature,
    sizes: Sequence[int],
    source: InputSource,
    origin: str,
) -> list[InputCase]:
    """Make a set of inputs for each batch size, by repeating examples or leaving some out."""
    batched = [alias for alias in arrays if input_casting.has_rows(signature, alias)]
    shapes = {alias: array.shape for alias, array in arrays.items()}
    if not batched:
        return [InputCase(shapes, None, source, lambda: arrays)]
    rows = arrays[batched[0]].shape[0]
    if rows == 0:
        raise InvalidInput(f"{origin}: the inputs have no rows. Give at least one row.")
    return [
        InputCase(
            {**shapes, **{alias: (size, *shapes[alias][1:]) for alias in batched}},
            size,
            source,
            partial(_take_rows, arrays, batched, size),
        )
        for size in sizes or [rows]
    ]


def _take_rows(arrays: Mapping[str, Array], batched: Sequence[str], size: int) -> dict[str, Array]:
    return {
        alias: array[np.arange(size) % len(array)] if alias in batched else array
        for alias, array in arrays.items()
    }


def _first_of_each_size(cases: Sequence[InputCase]) -> list[InputCase]:
    return list({case.batch_size: case for case in reversed(cases)}.values())[::-1]
