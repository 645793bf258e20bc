"""Takes batches of equal size from one input pipeline, which is a Dataset or tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology
from trainer.infeed import narrowing, shards
from trainer.infeed.final_batch_padding import BatchSpec, FinalBatchPadding, RefusePartialBatches
from trainer.infeed.tensor_nest import TensorLeaf, TensorNest, build_tensor_nest, format_shape
from trainer.inputs import input_pipeline
from trainer.tensorflow_internals import nest

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


@dataclass(frozen=True)
class InputSource:
    """The batches of one input pipeline, which is built by one call of input_fn.

    A batch may have a mask, which marks the examples that are padding.

    Attributes:
      axes: for each tensor of `nest` the axis that counts the examples; None for a scalar.
      rows: number of examples of a batch that has a mask; None if batches have no mask.
      next_batch: builds the ops that take the next batch; returns the batch's tensors in the order
        of `nest.leaves`, with int32 in place of int64, and at the end the mask if there is one.
      initializer: the op that starts the Dataset's iterator; None if input_fn returned tensors.
    """

    nest: TensorNest
    axes: tuple[int | None, ...]
    shards: int
    rows: int | None
    next_batch: Callable[[], list[Any]]
    initializer: Any
    may_be_partial: bool = False

    def next_shards(self) -> list[list[Any]]:
        """Build the ops that take and split the next batch; return a list of tensors per shard."""
        axes = [*self.axes, 0] if self.rows else self.axes
        return shards.split_into_shards(self.next_batch(), axes, self.shards)

    def shard_nest(self) -> TensorNest:
        """Return the structure and the specs of one shard's tensors."""
        return self.nest.with_leaves(
            [
                leaf if axis is None else leaf.part(axis, self.shards)
                for leaf, axis in zip(self.nest.leaves, self.axes, strict=True)
            ]
        )


def build_input_source(
    returned: Any,
    topology: BatchTopology,
    replicas: int,
    *,
    batch_axis: Any = None,
    padding: FinalBatchPadding | None = None,
    steps: int | None = None,
) -> InputSource:
    """Build the InputSource of the value that an input_fn returned.

    Args:
      batch_axis: for each tensor the axis along which a batch is split; None for the first axis.
      padding: the policy for batches with too few examples; None refuses such batches.
      steps: with a policy that pads, the number of global batches to take; None for all.

    Raises:
      InvalidType: the return value has another type, or a tensor has a type that a TPU does not
        support.
      InvalidSetting: the shapes are not static, or the tensors cannot be split.
    """
    padding = padding or RefusePartialBatches()
    is_dataset = isinstance(returned, tf.data.Dataset)
    mode, batch_size = topology.input_mode, topology.batch_size_for_input_fn
    input_nest = build_tensor_nest(returned.element_spec if is_dataset else _specs(returned))
    if not is_dataset:
        _check_tensor_input(returned, mode, padding)
    check_types(input_nest)
    narrowing.warn_once(input_nest.leaves)
    axes = shards.resolve_batch_axes(input_nest, batch_axis)
    num_shards = shards.num_shards(mode, replicas)
    check_shapes(
        input_nest, axes, batch_size, any_rows=is_dataset and padding.allows_partial_batches
    )
    batch_spec: BatchSpec | None = None
    if padding.allows_partial_batches:
        if num_shards == 1:
            axes = _axes_of_unsplit_batch(input_nest, axes, batch_size)
        rows = _count_rows(input_nest, axes, batch_size)
        batch_spec = BatchSpec(input_nest.leaves, axes, rows, num_shards)
        input_nest = input_nest.with_leaves(batch_spec.full_leaves())
    check_divides(input_nest, axes, num_shards, batch_size)
    if not is_dataset:
        return _tensor_source(returned, input_nest, axes, num_shards, batch_spec)
    if batch_spec is not None and steps is not None:
        per_step = replicas if mode == InputPipelineConfig.PER_HOST_V2 else 1
        returned = returned.take(steps * per_step)
    return _dataset_source(returned, input_nest, axes, num_shards, batch_spec, padding)


def _tensor_source(
    returned: Any,
    input_nest: TensorNest,
    axes: tuple[int | None, ...],
    num_shards: int,
    batch_spec: BatchSpec | None,
) -> InputSource:
    tensors = [tf.convert_to_tensor(tensor) for tensor in input_nest.flatten(returned)]
    rows = None if batch_spec is None else batch_spec.rows
    mask = [] if rows is None else [tf.ones([rows], tf.int32)]

    def next_batch() -> list[Any]:
        return narrowing.narrow([*tensors, *mask], input_nest.leaves)

    return InputSource(input_nest, axes, num_shards, rows, next_batch, None)


def _dataset_source(
    dataset: Any,
    input_nest: TensorNest,
    axes: tuple[int | None, ...],
    num_shards: int,
    batch_spec: BatchSpec | None,
    padding: FinalBatchPadding,
) -> InputSource:
    if batch_spec is not None:
        dataset = padding.pad(_flatten_elements(dataset, input_nest), batch_spec)
    iterator = input_pipeline.make_iterator(dataset)

    def next_batch() -> list[Any]:
        element = iterator.get_next()
        tensors = input_nest.flatten(element) if batch_spec is None else list(element)
        return narrowing.narrow(tensors, input_nest.leaves)

    rows = None if batch_spec is None else batch_spec.rows
    may_be_partial = batch_spec is not None and batch_spec.may_be_partial()
    return InputSource(
        input_nest, axes, num_shards, rows, next_batch, iterator.initializer, may_be_partial
    )


def _check_tensor_input(returned: Any, mode: Any, padding: FinalBatchPadding) -> None:
    if mode == InputPipelineConfig.PER_HOST_V2:
        raise InvalidType(
            f"input_fn returned {returned!r:.200}. PER_HOST_V2 takes a batch of its own for each "
            f"replica: return a tf.data.Dataset."
        )
    if padding.needs_end_of_input:
        raise InvalidType(
            f"input_fn returned {returned!r:.200}. Predicting needs to see the end of the input: "
            f"return a tf.data.Dataset."
        )


def _axes_of_unsplit_batch(
    input_nest: TensorNest, axes: tuple[int | None, ...], batch_size: int
) -> tuple[int | None, ...]:
    return tuple(
        axis
        if axis is None or leaf.size(axis) in (None, batch_size)
        else leaf.last_axis_of_size(batch_size, default=axis)
        for leaf, axis in zip(input_nest.leaves, axes, strict=True)
    )


def _count_rows(input_nest: TensorNest, axes: tuple[int | None, ...], batch_size: int) -> int:
    """Return the number of examples in a full batch."""
    rows_by_leaf = {
        leaf: rows
        for leaf, axis in zip(input_nest.leaves, axes, strict=True)
        if axis is not None and (rows := leaf.size(axis)) is not None
    }
    if len(set(rows_by_leaf.values())) > 1:
        sizes = [leaf.size(axis) for leaf in input_nest.leaves for axis in range(_rank(leaf))]
        others = {leaf: rows for leaf, rows in rows_by_leaf.items() if rows != batch_size}
        if None not in sizes and all(
            _rank(leaf) == 1 and rows % batch_size == 0 for leaf, rows in others.items()
        ):
            return batch_size
        raise InvalidSetting(
            f"the tensors of input_fn have different numbers of rows: "
            f"{', '.join(map(str, rows_by_leaf))}. Give every tensor one row for each example."
        )
    return next(iter(rows_by_leaf.values()), batch_size)


def _rank(leaf: TensorLeaf) -> int:
    return int(leaf.spec.shape.rank)


def _flatten_elements(dataset: Any, input_nest: TensorNest) -> Any:
    is_tuple = type(dataset.element_spec) is tuple

    def flatten(*parts: Any) -> tuple[Any, ...]:
        return tuple(input_nest.flatten(parts if is_tuple else parts[0]))

    return dataset.map(tf.autograph.experimental.do_not_convert(flatten))


def _specs(returned: Any) -> Any:
    return nest.map_structure(lambda value: _spec(value, returned), returned)


def _spec(value: Any, returned: Any) -> Any:
    if value is None:
        return None
    if not tf.is_tensor(value):
        raise InvalidType(
            f"input_fn returned {returned!r:.200}, in which {value!r:.100} is not a tensor. Return "
            f"a tf.data.Dataset, or tensors as (features, labels)."
        )
    if isinstance(value, tf.Variable):
        return tf.TensorSpec(value.shape, value.dtype)
    return tf.type_spec_from_value(value)
