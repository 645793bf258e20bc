"""Checks that the dtypes and shapes of an input suit a TPU; the errors name the tensor."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.infeed.tensor_nest import TensorNest, format_shape

TYPES = (
    tf.float32,
    tf.bfloat16,
    tf.int32,
    tf.uint32,
    tf.bool,
    tf.int8,
    tf.uint8,
    tf.complex64,
    tf.int64,
)
"""The dtypes that an input may have. The infeed transfers int64 tensors as int32."""

_CASTS = {
    tf.uint64: "tf.uint32",
    tf.int16: "tf.int32",
    tf.uint16: "tf.int32",
    tf.float64: "tf.float32",
    tf.float16: "tf.bfloat16",
    tf.complex128: "tf.complex64",
}


def check_types(input_nest: TensorNest) -> None:
    """Check that all tensors are dense and have dtypes that a TPU supports.

    Raises:
      InvalidType: a tensor is not dense or has another dtype. The error names the tensor and the
        fix, such as a cast.
    """
    for leaf in input_nest.leaves:
        if not isinstance(leaf.spec, tf.TensorSpec):
            raise InvalidType(
                f"{leaf.path} from input_fn is {_format_kind(leaf.spec)}. A TPU takes dense "
                f"tensors only: convert it to a dense tensor in input_fn{_densify(leaf.spec)}."
            )
        if leaf.spec.dtype not in TYPES:
            names = ", ".join(dtype.name for dtype in TYPES)
            raise InvalidType(
                f"{leaf} from input_fn cannot be fed to a TPU, which takes {names}. "
                f"{_suggest_conversion(leaf.spec.dtype)}"
            )


def check_shapes(
    input_nest: TensorNest, axes: Sequence[int | None], batch_size: int, *, any_rows: bool
) -> None:
    """Check that all tensors have static shapes.

    A tensor with a `TensorLeaf.padding` may have an unknown number of columns.

    Args:
      axes: for each tensor the axis that counts the examples; None for a scalar.
    """
    for leaf, axis in zip(input_nest.leaves, axes, strict=True):
        rank = leaf.spec.shape.rank
        if rank is None or (
            leaf.padding is None
            and any(leaf.size(index) is None for index in range(rank) if index != axis)
        ):
            raise InvalidSetting(
                f"{leaf} from input_fn must have static shape: a TPU program is compiled for "
                f"fixed shapes. Set the shape with tf.ensure_shape(x, [...]) in input_fn, or pad "
                f"to one size, as dataset.padded_batch(..., padded_shapes=...) does."
            )
        if axis is not None and leaf.size(axis) is None and not any_rows:
            raise InvalidSetting(
                f"{leaf} from input_fn must have static shape, and its number of rows is "
                f"unknown: the last batch could be smaller. Make the batches with "
                f"dataset.batch(params['batch_size'], drop_remainder=True), or set the shape with "
                f"tf.ensure_shape if a later map() has lost it; params['batch_size'] is "
                f"{batch_size}."
            )


def check_divides(
    input_nest: TensorNest, axes: Sequence[int | None], shards: int, batch_size: int
) -> None:
    """Check that all tensors can be split evenly for the replicas.

    Args:
      axes: for each tensor the axis that counts the examples; None for a scalar.
    """
    if shards == 1:
        return
    for leaf, axis in zip(input_nest.leaves, axes, strict=True):
        if axis is None:
            raise InvalidSetting(
                f"{leaf} from input_fn is a scalar, and cannot be split for {shards} replicas. "
                f"Give it a dimension of one value for each of the {batch_size} rows."
            )
        rows = leaf.size(axis)
        if rows is not None and rows % shards:
            raise InvalidSetting(
                f"{leaf} from input_fn has {rows} rows along axis {axis}, which cannot be split "
                f"evenly for {shards} replicas. Give batches of params['batch_size'] = "
                f"{batch_size} rows."
            )


def _format_kind(spec: Any) -> str:
    kinds = {tf.SparseTensorSpec: "sparse", tf.RaggedTensorSpec: "ragged"}
    kind = kinds.get(type(spec), type(spec).__name__)
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    return kind if shape is None or dtype is None else f"{kind} ({dtype.name}{format_shape(shape)})"


def _densify(spec: Any) -> str:
    if isinstance(spec, tf.SparseTensorSpec):
        return ", as tf.sparse.to_dense(x) does, and give it a static shape"
    if isinstance(spec, tf.RaggedTensorSpec):
        return ", as x.to_tensor(shape=[...]) does"
    return ""


def _suggest_conversion(dtype: Any) -> str:
    if dtype in _CASTS:
        return f"Cast it in input_fn: tf.cast(x, {_CASTS[dtype]})."
    if dtype == tf.string:
        return (
            "Remove strings from the result of input_fn, or convert them to numbers: "
            "tf.cast(tf.strings.to_hash_bucket_fast(x, buckets), tf.int32), or a lookup table."
        )
    return "Remove it from the result of input_fn, or convert it to numbers."
