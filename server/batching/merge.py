"""Inputs of several requests → those of one batch, and its outputs → those of each.

The texts are TensorFlow Serving's.
Source: tensorflow_serving/batching/batching_session.cc and batching_util.cc.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from server.config.batching_parameters import BatchingParameters
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor, UnbatchableTensor
from tpuserve.saved_model.signature import Signature


def count_rows(inputs: Mapping[str, Array]) -> int:
    """The rows of a request, which all of its inputs have.

    Raises:
      InvalidTensor: an input has none, or they have not the same number.
    """
    if any(array.ndim == 0 for array in inputs.values()):
        raise InvalidTensor("Batching Run() input tensors must have at least one dimension")
    sizes = {len(array) for array in inputs.values()}
    if len(sizes) != 1:
        raise InvalidTensor("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def have_same_types(pieces: Sequence[Mapping[str, Array]]) -> bool:
    """Whether the inputs of several requests are of the same element types."""
    # numpy would find a common type, and so answer what the model refuses on its own.
    return all(
        array.dtype == pieces[0][alias].dtype
        for piece in pieces[1:]
        for alias, array in piece.items()
    )


def join(
    pieces: Sequence[Mapping[str, Array]],
    size: int,
    signature: Signature,
    parameters: BatchingParameters,
) -> dict[str, Array]:
    """The inputs of several requests as one, padded to the least allowed size.

    Repeats the first row: it is known to be valid input, zeros may not be.

    Args:
      pieces: of each request, alias → [rows, ...].
      size: the rows of all of them.

    Raises:
      UnbatchableTensor: rows of different sizes, where those are not padded.
    """
    missing = parameters.padded_size(size) - size
    if len(pieces) == 1 and not missing:
        return dict(pieces[0])
    joined: dict[str, Array] = {}
    for alias in pieces[0]:
        arrays = [piece[alias] for piece in pieces]
        if len({array.shape[1:] for array in arrays}) > 1:
            arrays = _level(arrays, signature.inputs[alias].name, parameters)
        if missing:
            first = next(array for array in arrays if len(array))[:1]
            arrays.append(np.repeat(first, missing, axis=0))
        joined[alias] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return joined


def split(
    outputs: Mapping[str, Array], sizes: Sequence[int], run_size: int
) -> Iterator[dict[str, Array]]:
    """The outputs of each request, out of those of the batch; padding is left out.

    Args:
      sizes: the rows of each request.
      run_size: the rows that were run, padding included.

    Raises:
      UnbatchableTensor: an output has no row for each row that was run.
    """
    for array in outputs.values():
        if array.ndim == 0:
            raise UnbatchableTensor("Batched output tensor has 0 dimensions")
        if len(array) != run_size:
            raise UnbatchableTensor(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th "
                "dimension sizes of the input tensors"
            )
    if len(sizes) == 1 and sizes[0] == run_size:
        yield dict(outputs)
        return
    start = 0
    for size in sizes:
        yield {alias: array[start : start + size] for alias, array in outputs.items()}
        start += size


def _level(arrays: list[Array], name: str, parameters: BatchingParameters) -> list[Array]:
    # All to the largest size in each dimension, with the first element of each array.
    if len({array.ndim for array in arrays}) > 1 or not parameters.pad_variable_length_inputs:
        raise UnbatchableTensor(
            f"Tensors with name '{name}' from different tasks have different shapes and padding "
            f"is turned off. Set pad_variable_length_inputs to true, or ensure that all tensors "
            f"with the same name have equal dimensions starting with the first dim."
        )
    shape = [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]
    levelled = []
    for array in arrays:
        empty = b"" if array.dtype == object else array.dtype.type(0)
        padded = np.full((len(array), *shape), array.flat[0] if array.size else empty, array.dtype)
        padded[tuple(slice(size) for size in array.shape)] = array
        levelled.append(padded)
    return levelled
