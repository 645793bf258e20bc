"""Collects the sets of inputs that each signature is verified with."""

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

# The batch sizes to generate if neither the user nor the model names any: a single row, and 8 rows,
# the number of sublanes of a TPU's vector unit.
DEFAULT_BATCH_SIZES = (1, 8)


@dataclass(frozen=True)
class InputCase:
    """One set of inputs of a signature.

    Attributes:
      inputs: Alias → array.
      batch_size: Rows of the inputs; None if they have no batch dimension.
      source: Where the inputs come from: "file", "warm-up record" or "generated".
    """

    inputs: Mapping[str, Array]
    batch_size: int | None
    source: InputSource


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
    inputs: Path | None,
    batch_sizes: Sequence[int],
    allowed_batch_sizes: Sequence[int],
    seed: int,
) -> InputCases:
    """Collect the inputs of each signature: from the file, else warm-up records, else generated.

    Args:
      directory: Directory of the SavedModel.
      meta_graph_def: TensorFlow's MetaGraphDef of the baseline.
      signatures: The signatures to run, by name.
      inputs: An .npz file of inputs; None for no file.
      batch_sizes: The batch sizes that the user asked for. The rows from a file or record are
        repeated or cut to these sizes. Empty means the rows that the file or record has; generated
        inputs then have the allowed batch sizes.
      allowed_batch_sizes: The allowed sizes of the metagraph's batch functions; empty if there
        are none.
      seed: Random seed for generated inputs.

    Raises:
      InvalidInput: The file cannot be used.
      DamagedSavedModel: The warm-up file cannot be read.
    """
    from_file: dict[str, dict[str, Array]] = {}
    if inputs is not None:
        from_file = npz_inputs.assign_to_signatures(
            npz_inputs.read_npz(inputs), signatures, str(inputs)
        )
    notes: list[str] = []
    from_records = warm_up_inputs.read_warm_up_inputs(directory, signatures, notes)
    by_signature: dict[str, Sequence[InputCase]] = {}
    for name, signature in signatures.items():
        source: InputSource = "file" if name in from_file else "warm-up record"
        input_sets = [from_file[name]] if name in from_file else from_records.get(name, [])
        if not input_sets:
            sizes = batch_sizes or allowed_batch_sizes or DEFAULT_BATCH_SIZES
            by_signature[name] = _generate_cases(meta_graph_def, name, signature, sizes, seed)
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
    meta_graph_def: Any, name: str, signature: Signature, sizes: Sequence[int], seed: int
) -> list[InputCase]:
    """Generate inputs for each batch size, or once if the signature has a fixed batch size."""
    if not samples.has_open_batch_size(meta_graph_def, name):
        shapes = [spec.shape for spec in signature.inputs.values()]
        fixed_sizes = [shape[0] for shape in shapes if shape]
        size = fixed_sizes[0] if fixed_sizes else None
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


def _resize_cases(
    arrays: Mapping[str, Array],
    signature: Signature,
    sizes: Sequence[int],
    source: InputSource,
    origin: str,
) -> list[InputCase]:
    """Make a case for each batch size by repeating or cutting rows.

    If `sizes` is empty or no input has a batch dimension, make one case of the inputs as they are.
    """
    batched = [alias for alias in arrays if input_casting.has_rows(signature, alias)]
    if not batched:
        return [InputCase(arrays, None, source)]
    rows = arrays[batched[0]].shape[0]
    if rows == 0:
        raise InvalidInput(f"{origin}: the inputs have no rows. Give at least one row.")
    cases = []
    for size in sizes or [rows]:
        indices = np.arange(size) % rows
        resized = {
            alias: array[indices] if alias in batched else array for alias, array in arrays.items()
        }
        cases.append(InputCase(resized, size, source))
    return cases


def _first_of_each_size(cases: Sequence[InputCase]) -> list[InputCase]:
    """Keep the first case of each batch size.

    Warm-up records that are resized to the same batch size rarely differ otherwise.
    """
    return list({case.batch_size: case for case in reversed(cases)}.values())[::-1]
