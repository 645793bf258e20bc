"""Merges the inputs of several requests into a batch, and splits the batch's outputs again.

A row is one example of a request: one index of the first dimension of all inputs.

The error texts are TensorFlow Serving's. Source: tensorflow_serving/batching/batching_session.cc
and batching_util.cc.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from server.config.batching_parameters import BatchingParameters
from server.servables.servable import Array
from tpuserve.errors import Code, CodedError, InvalidTensor

Layout: TypeAlias = tuple[tuple[str, Any, Any], ...]
"""For each input the alias, the element type, and the shape of a row or its rank."""
Request = TypeVar("Request")


class UnevenOutputs(CodedError):
    """The outputs of a batch have another number of rows (examples) than its inputs."""


def count_rows(inputs: Mapping[str, Array]) -> int:
    """Return the number of rows (examples) of a request, the first dimension of its inputs."""
    if any(array.ndim == 0 for array in inputs.values()):
        raise InvalidTensor("Batching Run() input tensors must have at least one dimension")
    sizes = {len(array) for array in inputs.values()}
    if len(sizes) != 1:
        raise InvalidTensor("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def can_share(inputs: Mapping[str, Array], max_batch_size: int) -> bool:
    """Return whether a request has the same number of rows in all inputs, and not too many."""
    sizes = {array.shape[:1] for array in inputs.values()}
    return len(sizes) == 1 and () < sizes.pop() <= (max_batch_size,)


def layout(inputs: Mapping[str, Array], is_padded: bool) -> Layout:
    """Return the layout of a request: two requests can be concatenated if their layouts are equal.

    A layout consists of the alias, the element type and the shape of a row of each input.

    Args:
      is_padded: whether rows of different shapes are padded to one shape. The layout then holds the
        number of dimensions instead of the shape.
    """
    return tuple(
        (alias, array.dtype, array.ndim if is_padded else array.shape[1:])
        for alias, array in sorted(inputs.items())
    )


def group_by_layout(requests: Sequence[Request], layouts: Sequence[Layout]) -> list[list[Request]]:
    """Group the requests that have equal layouts.

    `layouts` holds the layout of each request. The groups are in the order of their first requests.
    """
    groups: dict[Layout, list[Request]] = {}
    for request, request_layout in zip(requests, layouts, strict=True):
        groups.setdefault(request_layout, []).append(request)
    return list(groups.values())


def concat_and_pad(
    requests: Sequence[Mapping[str, Array]],
    size: int,
    parameters: BatchingParameters,
) -> dict[str, Array]:
    """Concatenate the inputs of several requests, and append padding up to an allowed batch size.

    The padded size is the smallest allowed batch size that is not less than `size`.

    Args:
      requests: for each request, input alias → [rows, ...]. All requests have the same `layout`.
    """
    missing = parameters.padded_size(size) - size
    if len(requests) == 1 and not missing:
        return dict(requests[0])
    merged: dict[str, Array] = {}
    for alias in requests[0]:
        arrays = [request[alias] for request in requests]
        if len({array.shape[1:] for array in arrays}) > 1:
            arrays = _pad_rows(arrays)
        if missing:
            first = next(array for array in arrays if len(array))[:1]
            arrays.append(np.repeat(first, missing, axis=0))
        merged[alias] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return merged


def split_outputs(
    outputs: Mapping[str, Array], sizes: Sequence[int], run_size: int
) -> Iterator[dict[str, Array]]:
    """Yield the part of a batch's outputs that belongs to each request, without the padding.

    Yields:
      Output alias → [rows, ...], for one request after the other.
    """
    for array in outputs.values():
        if array.ndim == 0:
            raise UnevenOutputs("Batched output tensor has 0 dimensions", Code.FAILED_PRECONDITION)
        if len(array) != run_size:
            raise UnevenOutputs(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th "
                "dimension sizes of the input tensors",
                Code.FAILED_PRECONDITION,
            )
    if len(sizes) == 1 and sizes[0] == run_size:
        yield dict(outputs)
        return
    start = 0
    for size in sizes:
        yield {alias: array[start : start + size] for alias, array in outputs.items()}
        start += size


def _pad_rows(arrays: list[Array]) -> list[Array]:
    """Pad the rows (examples) of one input of several requests to a common shape."""
    shape = [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]
    padded_arrays = []
    for array in arrays:
        empty = b"" if array.dtype == object else array.dtype.type(0)
        padded = np.full((len(array), *shape), array.flat[0] if array.size else empty, array.dtype)
        padded[tuple(slice(size) for size in array.shape)] = array
        padded_arrays.append(padded)
    return padded_arrays
