"""Collects the inputs on which a tool runs each signature: given, recorded or generated ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tpuserve import samples
from tpuserve.errors import InvalidInput, InvalidTensor
from tpuserve.graph import state_writes
from tpuserve.samples import npz_inputs, warm_up_inputs
from tpuserve.saved_model.signature import Signature, TensorSpec

Array = np.ndarray[Any, Any]


def cast_inputs(
    arrays: Mapping[str, Array], signature: Signature, origin: str
) -> tuple[dict[str, Array], list[str]]:
    """Cast arrays to the dtypes of a signature's inputs, and check their shapes.

    Floats are cast to floats of another width, and integers to integers of another width if all
    values fit.

    Args:
      origin: Where the arrays come from, such as the name of a file, for messages.

    Raises:
      InvalidTensor: An array has a dtype, a shape or a value that does not fit, or the arrays have
        different batch sizes.
    """
    notes: list[str] = []
    converted = {}
    for alias, array in arrays.items():
        spec = signature.inputs[alias]
        subject = f"{origin}: input {alias!r}"
        converted[alias] = _cast(array, spec, subject, notes)
        _check_shape(array, spec, subject)
    rows = {
        alias: array.shape[0] for alias, array in converted.items() if has_rows(signature, alias)
    }
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{alias} {count}" for alias, count in rows.items())
        raise InvalidTensor(
            f"{origin}: inputs have different numbers of rows: {counts}. Give all inputs the same "
            f"number."
        )
    return converted, notes


def has_rows(signature: Signature, alias: str) -> bool:
    """Return whether an input has a batch dimension: a first dimension of unknown size."""
    shape = signature.inputs[alias].shape
    return bool(shape) and shape[0] is None  # type: ignore[index]


def _cast(array: Array, spec: TensorSpec, subject: str, notes: list[str]) -> Array:
    if spec.dtype == "string":
        return _encode_strings(array, subject)
    target = tf.as_dtype(spec.dtype)
    try:
        dtype = tf.as_dtype(array.dtype)
    except TypeError:
        dtype = None
    if dtype == target:
        return array
    is_same_kind = dtype is not None and (
        (dtype.is_floating and target.is_floating) or (dtype.is_integer and target.is_integer)
    )
    if not is_same_kind:
        raise InvalidTensor(
            f"{subject} is {array.dtype}, and the signature takes {spec.dtype}. Convert the array, "
            f"for example with array.astype(...)."
        )
    with np.errstate(over="ignore"):
        converted = array.astype(target.as_numpy_dtype)
    if target.is_integer:
        fits = bool((converted == array).all())
    else:
        fits = bool((np.isfinite(converted) == np.isfinite(array)).all())
    if not fits:
        raise InvalidTensor(
            f"{subject} is {array.dtype} with values that do not fit into {spec.dtype}, which the "
            f"signature takes. Give smaller values."
        )
    notes.append(f"{subject} was converted from {array.dtype} to {spec.dtype}")
    return converted


def _encode_strings(array: Array, subject: str) -> Array:
    """Convert an array of text or bytes to an object array of bytes; text is encoded as UTF-8."""
    if array.dtype.kind not in "SUO":
        raise InvalidTensor(
            f"{subject} is {array.dtype}, and the signature takes strings. Give an array of "
            f"strings or bytes."
        )
    encoded = np.empty(array.shape, object)
    for position, value in np.ndenumerate(array):
        encoded[position] = value.encode() if isinstance(value, str) else bytes(value)
    return encoded


def _check_shape(array: Array, spec: TensorSpec, subject: str) -> None:
    if spec.shape is None:
        return
    fits = len(spec.shape) == array.ndim and all(
        expected is None or expected == size
        for expected, size in zip(spec.shape, array.shape, strict=False)
    )
    if not fits:
        shape = ", ".join(map(str, array.shape))
        raise InvalidTensor(
            f"{subject} has the shape [{shape}], and the signature takes {spec}. Give an array of "
            f"that shape."
        )


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
            converted, conversions = cast_inputs(arrays, signature, origin)
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
    batched = [alias for alias in arrays if has_rows(signature, alias)]
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
