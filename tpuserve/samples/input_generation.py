"""Generates input arrays for a signature and a batch size."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidInput, SignatureNotFound
from tpuserve.samples import parsing, values
from tpuserve.samples.parsing import ParsedFeature
from tpuserve.samples.values import WORDS
from tpuserve.saved_model import dtypes

# The largest number of values of a feature of variable length. All such features of one tf.Example
# have the same length, because two of them may be the indices and the values of a sparse tensor.
MAX_LENGTH = 2
# The size to generate for an unknown dimension other than the batch dimension, such as the width of
# an image or the length of a text.
OPEN_DIMENSION = 8
MAX_ELEMENTS = 1 << 24
"""The largest number of elements that are generated for one row (example) of a signature."""
STRING_ELEMENTS = 16


def generate_inputs(
    meta_graph_def: Any,
    signature_name: str,
    batch_size: int,
    *,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Generate the inputs of a signature; the same seed gives the same inputs.

    Floats are uniform in [0, 1). Integers are 0 or 1, which are valid IDs for any embedding table.

    Args:
      shapes: alias → shape of an input, in place of the shape that follows from the signature and
        `batch_size`. None means that all shapes follow from those two.

    Returns:
      Input alias → array. Strings are object arrays of bytes.

    Raises:
      InvalidInput: the signature has a fixed batch size that is not `batch_size`; an input has a
        dtype that is quantized or that NumPy arrays cannot have, such as resource, or more
        dimensions than they can have; an input has several tensors, as a sparse tensor has; a row
        has more than `MAX_ELEMENTS` elements; or `shapes` names an input that the signature does
        not have.
    """
    signature = _find_signature_def(meta_graph_def, signature_name)
    for alias in shapes or ():
        if alias not in signature.inputs:
            raise InvalidInput(
                f"a shape is given for input {alias!r}; the signature has "
                f"{', '.join(sorted(signature.inputs)) or 'no inputs'}. Name one of those."
            )
    declared = input_shapes(meta_graph_def, signature_name, batch_size)
    given = shapes or {}
    infos = sorted(signature.inputs.items())
    uses = {alias: _string_use(meta_graph_def.graph_def, info) for alias, info in infos}
    rows = batch_size if has_open_batch_size(meta_graph_def, signature_name) else 1
    _check_sizes(
        {
            alias: math.prod(shape) * uses[alias].values_per_string // rows
            for alias, shape in declared.items()
            if alias not in given
        },
        signature,
    )
    random = np.random.default_rng(seed)
    return {
        alias: _array(info, alias, {**declared, **given}[alias], uses[alias], random)
        for alias, info in infos
    }


def input_shapes(
    meta_graph_def: Any,
    signature_name: str,
    batch_size: int,
    open_dimension: int = OPEN_DIMENSION,
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of generated inputs: input alias → shape."""
    signature = _find_signature_def(meta_graph_def, signature_name)
    _check_rows(signature, signature_name, batch_size)
    return {
        alias: _shape(info.tensor_shape, batch_size, open_dimension)
        for alias, info in signature.inputs.items()
    }


def has_open_batch_size(meta_graph_def: Any, signature_name: str) -> bool:
    """Return whether a signature accepts any batch size."""
    signature = _find_signature_def(meta_graph_def, signature_name)
    return any(_is_open(info) for info in signature.inputs.values())


def _find_signature_def(meta_graph_def: Any, name: str) -> Any:
    if name not in meta_graph_def.signature_def:
        raise SignatureNotFound(
            f"no signature {name!r}; found {', '.join(sorted(meta_graph_def.signature_def))}. "
            f"Name one of those."
        )
    return meta_graph_def.signature_def[name]


def _is_open(info: Any) -> bool:
    shape = info.tensor_shape
    return bool(shape.unknown_rank or (shape.dim and shape.dim[0].size < 0))


def _check_rows(signature: Any, name: str, batch_size: int) -> None:
    inputs = signature.inputs.values()
    fixed = {info.tensor_shape.dim[0].size for info in inputs if info.tensor_shape.dim}
    # A signature accepts any batch size if the first dimension of at least one input has an unknown
    # size. In this case, a fixed first dimension of another input is not a batch dimension.
    if not fixed or batch_size in fixed or any(_is_open(info) for info in inputs):
        return
    rows = " or ".join(str(size) for size in sorted(fixed))
    raise InvalidInput(
        f"signature {name!r} takes {rows} rows at a time, not {batch_size}. Ask for that number, "
        f"or export with an open first dimension."
    )


def _check_sizes(counts: Mapping[str, int], signature: Any) -> None:
    """Raise InvalidInput if a row has more than `MAX_ELEMENTS` elements."""
    left = MAX_ELEMENTS
    for alias, count in counts.items():
        is_string = signature.inputs[alias].dtype == dtypes.STRING
        left -= count * (STRING_ELEMENTS if is_string else 1)
        if left < 0:
            raise InvalidInput(
                f"input {alias!r} has {count} values in a row, too many to generate: inputs may "
                f"have {MAX_ELEMENTS} numbers, and a string counts as {STRING_ELEMENTS} of them. "
                f"Give the values in a file or in warm-up requests, or leave out the signature."
            )


def _string_use(graph_def: Any, info: Any) -> parsing.StringInputUse:
    if info.dtype != dtypes.STRING or not info.name:
        return parsing.StringInputUse()
    return parsing.infer_string_input(graph_def, info.name)


def _array(
    info: Any,
    alias: str,
    shape: Sequence[int],
    use: parsing.StringInputUse,
    random: np.random.Generator,
) -> np.ndarray[Any, Any]:
    if not info.name:
        raise InvalidInput(
            f"input {alias!r} is made of several tensors, such as a sparse one. Export a "
            f"signature that takes each of them by a name of its own."
        )
    count = math.prod(shape)
    try:
        if info.dtype != dtypes.STRING:
            return values.random_array(tf.as_dtype(info.dtype), shape, random, alias)
        if use.features:
            return values.string_array(
                [_serialized_example(use.features, random) for _ in range(count)], shape
            )
        if use.is_picture:
            return values.string_array([values.random_picture(random) for _ in range(count)], shape)
        return values.random_words(shape, random, are_numbers=use.is_read_as_number)
    except ValueError as error:
        raise InvalidInput(
            f"input {alias!r} cannot be a NumPy array: {error}. Leave out the signature."
        ) from error


def _shape(proto: Any, batch_size: int, open_dimension: int) -> tuple[int, ...]:
    if proto.unknown_rank:
        return (batch_size,)
    open_sizes = (batch_size, *[open_dimension] * len(proto.dim))
    return tuple(
        open_size if dimension.size < 0 else dimension.size
        for dimension, open_size in zip(proto.dim, open_sizes, strict=False)
    )


def _serialized_example(features: Sequence[ParsedFeature], random: np.random.Generator) -> bytes:
    example = tf.train.Example()
    length = int(random.integers(1, MAX_LENGTH + 1))
    for feature in features:
        _fill(example.features.feature[feature.key], feature, length, random)
    return bytes(example.SerializeToString(deterministic=True))


def _fill(
    message: tf.train.Feature, feature: ParsedFeature, length: int, random: np.random.Generator
) -> None:
    count = length if feature.size is None else feature.size
    if feature.dtype == dtypes.STRING:
        message.bytes_list.value.extend(
            WORDS[index] for index in random.integers(0, len(WORDS), count)
        )
    elif feature.dtype in dtypes.WHOLE_NUMBERS:
        message.int64_list.value.extend(_whole_numbers(feature, count, random))
    else:
        message.float_list.value.extend(random.random(count, np.float32))


def _whole_numbers(feature: ParsedFeature, count: int, random: np.random.Generator) -> list[int]:
    if feature.size is None:
        # Return numbers without duplicates, because they may be the indices of a sparse tensor.
        return [int(number) for number in random.permutation(MAX_LENGTH)[:count]]
    return [int(number) for number in random.integers(0, 2, count)]
