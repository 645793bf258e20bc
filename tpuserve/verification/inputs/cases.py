"""What each signature is run on, and at which batch sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuserve import samples
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature
from tpuserve.verification.inputs import input_casting, npz_inputs, warm_up_inputs
from tpuserve.verification.report import InputSource

Array = np.ndarray[Any, Any]

# One row, and as many as a vector unit of a TPU has lanes in its short direction.
DEFAULT_BATCH_SIZES = (1, 8)


@dataclass(frozen=True)
class InputCase:
    """One set of inputs of a signature.

    Attributes:
      inputs: alias → array.
      batch_size: their rows; None where they have none.
      source: where they are from.
    """

    inputs: Mapping[str, Array]
    batch_size: int | None
    source: InputSource


@dataclass(frozen=True)
class InputCases:
    """All sets of inputs.

    Attributes:
      by_signature: name → its cases.
      notes: what was done to inputs that people brought.
    """

    by_signature: Mapping[str, Sequence[InputCase]]
    notes: tuple[str, ...]


def collect_cases(
    directory: Path,
    meta_graph_def: Any,
    signatures: Mapping[str, Signature],
    *,
    inputs: Path | None,
    batch_sizes: Sequence[int],
    allowed_batch_sizes: Sequence[int],
    seed: int,
) -> InputCases:
    """The inputs to run signatures on: a file's, else those to warm up with, else generated ones.

    Args:
      directory: of the SavedModel.
      meta_graph_def: of the baseline, as TensorFlow's proto.
      signatures: those to run.
      inputs: the file.
      batch_sizes: the ones asked for; given inputs are repeated or cut to have as many rows.
        None asked for are those of the given inputs; generated ones have the allowed sizes.
      allowed_batch_sizes: those of the metagraph's batch functions.
      seed: of generated inputs.

    Raises:
      InvalidInput: a file that cannot be used.
      DamagedSavedModel: a warm-up file that cannot be read.
    """
    given: dict[str, list[dict[str, Array]]] = {}
    source: InputSource = "file"
    notes: list[str] = []
    of_file: dict[str, dict[str, Array]] = {}
    if inputs is not None:
        of_file = npz_inputs.assign_to_signatures(
            npz_inputs.read_npz(inputs), signatures, str(inputs)
        )
    of_records = warm_up_inputs.read_warm_up_inputs(directory, signatures, notes)
    by_signature: dict[str, Sequence[InputCase]] = {}
    for name, signature in signatures.items():
        if name in of_file:
            source, given[name] = "file", [of_file[name]]
        else:
            source, given[name] = "warm-up record", of_records.get(name, [])
        if not given[name]:
            sizes = batch_sizes or allowed_batch_sizes or DEFAULT_BATCH_SIZES
            by_signature[name] = _generated(meta_graph_def, name, signature, sizes, seed)
            continue
        where = str(inputs) if source == "file" else "warm-up record"
        cases = []
        for each in given[name]:
            arrays, done = input_casting.cast_inputs(each, signature, where)
            notes += [note for note in done if note not in notes]
            cases += _sized(arrays, signature, batch_sizes, source, where)
        by_signature[name] = _different(cases) if batch_sizes else cases
    return InputCases(by_signature, tuple(notes))


def _generated(
    meta_graph_def: Any, name: str, signature: Signature, sizes: Sequence[int], seed: int
) -> list[InputCase]:
    if not samples.has_open_batch_size(meta_graph_def, name):
        shapes = [each.shape for each in signature.inputs.values()]
        fixed = [shape[0] for shape in shapes if shape]
        size = fixed[0] if fixed else None
        arrays = samples.generate_inputs(meta_graph_def, name, size or 1, seed=seed)
        return [InputCase(arrays, size, "generated")]
    return [
        InputCase(
            samples.generate_inputs(meta_graph_def, name, size, seed=seed),
            size,
            "generated",
        )
        for size in sizes
    ]


def _sized(
    arrays: Mapping[str, Array],
    signature: Signature,
    sizes: Sequence[int],
    source: InputSource,
    where: str,
) -> list[InputCase]:
    batched = [each for each in arrays if input_casting.has_rows(signature, each)]
    if not batched:
        return [InputCase(arrays, None, source)]
    rows = arrays[batched[0]].shape[0]
    if rows == 0:
        raise InvalidInput(f"{where}: inputs have no rows. Give at least one.")
    cases = []
    for size in sizes or [rows]:
        chosen = np.arange(size) % rows
        resized = {name: each[chosen] if name in batched else each for name, each in arrays.items()}
        cases.append(InputCase(resized, size, source))
    return cases


def _different(cases: Sequence[InputCase]) -> list[InputCase]:
    """The first case of each batch size: warm-up records differ in little else."""
    return list({each.batch_size: each for each in reversed(cases)}.values())[::-1]
