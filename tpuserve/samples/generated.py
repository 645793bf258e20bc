"""A signature and a batch size → arrays to feed it with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidInput, SignatureNotFound
from tpuserve.samples import examples, parsing, values

# Of a dimension beside the batch that the signature leaves open: a picture's side, a text's
# length. Smaller ones vanish in a few strided layers.
OPEN_DIMENSION = 8


def generate_inputs(
    meta_graph_def: Any, signature_name: str, batch_size: int, *, seed: int = 0
) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs by alias: the same ones for the same seed.

    Floats are uniform in [0, 1), whole numbers 0 or 1, which any table of ids has, and strings
    short words; where a string goes into tf.io.parse_example, it is a tf.Example with the
    features that are looked for.

    Args:
      meta_graph_def: TensorFlow's MetaGraphDef.
      signature_name: one of its signatures.
      batch_size: rows, for each first dimension that is unknown.
      seed: of the random numbers.

    Returns:
      alias → array; strings are object arrays of bytes.

    Raises:
      SignatureNotFound: no such signature.
      InvalidInput: the signature takes another number of rows, or something that no array holds.
    """
    signature = _find(meta_graph_def, signature_name)
    _check_rows(signature, signature_name, batch_size)
    random = np.random.default_rng(seed)
    return {
        alias: _array(meta_graph_def.graph_def, info, alias, batch_size, random)
        for alias, info in sorted(signature.inputs.items())
    }


def has_open_batch_size(meta_graph_def: Any, signature_name: str) -> bool:
    """Whether a signature takes any number of rows.

    Raises:
      SignatureNotFound: no such signature.
    """
    signature = _find(meta_graph_def, signature_name)
    return any(_is_open(each) for each in signature.inputs.values())


def _find(meta_graph_def: Any, name: str) -> Any:
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
    fixed = {each.tensor_shape.dim[0].size for each in inputs if each.tensor_shape.dim}
    # Beside an input with an open batch, one of a fixed size is no batch.
    if not fixed or batch_size in fixed or any(_is_open(each) for each in inputs):
        return
    rows = " or ".join(str(each) for each in sorted(fixed))
    raise InvalidInput(
        f"signature {name!r} takes {rows} rows at a time, not {batch_size}. Ask for that number, "
        f"or export with an open first dimension."
    )


def _array(
    graph_def: Any, info: Any, alias: str, batch_size: int, random: np.random.Generator
) -> np.ndarray[Any, Any]:
    if not info.name:
        raise InvalidInput(
            f"input {alias!r} is made of several tensors, such as a sparse one. Export a "
            f"signature that takes each of them by a name of its own."
        )
    shape = _shape(info.tensor_shape, batch_size)
    if info.dtype != tf.string.as_datatype_enum:
        return values.random_array(tf.as_dtype(info.dtype), shape, random, alias)
    use = parsing.infer_string_input(graph_def, info.name)
    if use.features:
        count = int(np.prod(shape, dtype=np.int64))
        return values.string_array(
            [examples.serialized_example(use.features, random) for _ in range(count)], shape
        )
    return values.random_words(shape, random, are_numbers=use.is_read_as_number)


def _shape(proto: Any, batch_size: int) -> Sequence[int]:
    if proto.unknown_rank:
        return (batch_size,)
    open_sizes = (batch_size, *[OPEN_DIMENSION] * len(proto.dim))
    return [
        open_size if each.size < 0 else each.size
        for each, open_size in zip(proto.dim, open_sizes, strict=False)
    ]
