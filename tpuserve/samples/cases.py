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
      shapes: Alias → shape.
      batch_size: Number of examples in the inputs; None if they have no batch dimension.
      source: Where the inputs come from: "file", "warm-up record" or "generated".
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
      by_signature: Signature name → the sets of inputs to run the signature on.
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

    The inputs of a signature come from the file, if it has inputs for the signature. Otherwise they
    come from the warm-up records of the SavedModel. For a signature without warm-up records, inputs
    are generated.

    Args:
      directory: Directory of the SavedModel.
      meta_graph_def: TensorFlow's MetaGraphDef of the {serve} metagraph.
      signatures: The signatures to run, by name.
      available: All signatures of the SavedModel, by name. The file may have inputs for those that
        do not run.
      inputs: An .npz file of inputs; None for no file.
      batch_sizes: The batch sizes that the user asked for. Examples from a file or a warm-up record
        are repeated or cut to these sizes. Empty to keep the sizes of the file or record, and to
        generate inputs of the allowed batch sizes.
      allowed_batch_sizes: The allowed_batch_sizes of the BatchFunction ops of the SavedModel; empty
        if there are none.
      seed: Random seed for generated inputs.
      open_dimension: Size of the unknown dimensions of generated inputs, except the batch.

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
    """Generate inputs for each batch size, or for the size that the signature fixes."""
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
    """Make a set of inputs for each batch size, by repeating examples or leaving some out.

    If `sizes` is empty or no input has a batch dimension, return the inputs unchanged as one set.

    Args:
      arrays: Input alias → array.
      signature: The signature of the inputs.
      sizes: The batch sizes to make.
      source: "file" or "warm-up record", for the report.
      origin: The path of the file, or "warm-up record", for the text of an error.
    """
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
    """Return inputs of `size` rows: the rows of the inputs in `batched` repeat, or are cut."""
    return {
        alias: array[np.arange(size) % len(array)] if alias in batched else array
        for alias, array in arrays.items()
    }


def _first_of_each_size(cases: Sequence[InputCase]) -> list[InputCase]:
    """Keep only the first set of inputs for each batch size.

    After resizing, many warm-up records have the same batch size, and running all of them would
    rarely show anything new.
    """
    return list({case.batch_size: case for case in reversed(cases)}.values())[::-1]
