"""The batches of one input pipeline, all of one size: from a Dataset, or from ops."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology
from trainer.infeed import final_batch_padding, shards, validation
from trainer.infeed import tensor_nest as structure
from trainer.infeed.tensor_nest import TensorNest
from trainer.tensorflow_internals import nest

FinalBatchPolicy: TypeAlias = Literal["refuse", "tile", "pad"]


@dataclass(frozen=True)
class InputSource:
    """The batches of one pipeline.

    Attributes:
      structure: of each batch, without the mask.
      axes: per tensor the axis of its rows, None for a scalar; the mask's is 0.
      shards: in how many parts a batch is split for the replicas.
      rows: how many the mask has, which is the last tensor; None without one.
      next: builds the ops that take the next batch: its tensors, in the order of the leaves.
      initializer: the op that starts the Dataset; None where the batches are from ops.
    """

    structure: TensorNest
    axes: tuple[int | None, ...]
    shards: int
    rows: int | None
    next: Callable[[], list[Any]]
    initializer: Any

    def split(self) -> list[list[Any]]:
        """The next batch in equal parts: for each shard its tensors."""
        axes = [*self.axes, 0] if self.rows else self.axes
        return shards.split_into_shards(self.next(), axes, self.shards)

    def shard(self) -> TensorNest:
        """The structure of one part."""
        return self.structure.with_leaves(
            [
                leaf if axis is None else leaf.part(axis, self.shards)
                for leaf, axis in zip(self.structure.leaves, self.axes, strict=True)
            ]
        )


def build_input_source(
    returned: Any,
    topology: BatchTopology,
    replicas: int,
    *,
    batch_axis: Any = None,
    smaller_batches: FinalBatchPolicy = "refuse",
    steps: int | None = None,
) -> InputSource:
    """The batches that an input_fn returned.

    Args:
      returned: a Dataset or tensors, of features or (features, labels).
      topology: the input mode, and the batch size that input_fn was asked for.
      replicas: how many this pipeline feeds.
      batch_axis, smaller_batches, steps: see `trainer.infeed.build_infeed`.

    Raises:
      InvalidType: it is nothing of the kind, or has tensors of types that no TPU takes.
      InvalidSetting: the shapes are not static, or cannot be split.
    """
    is_dataset = isinstance(returned, tf.data.Dataset)
    mode, batch_size = topology.input_mode, topology.batch_size_for_input_fn
    found = structure.build_tensor_nest(returned.element_spec if is_dataset else _specs(returned))
    if not is_dataset:
        _check_tensors_will_do(returned, mode, smaller_batches)
    validation.check_types(found)
    axes = shards.resolve_batch_axes(found, batch_axis)
    split_in = shards.num_shards(mode, replicas)
    validation.check_shapes(
        found, axes, batch_size, any_rows=is_dataset and smaller_batches != "refuse"
    )
    if smaller_batches != "refuse" and split_in == 1:
        axes = _axes_of_whole(found, axes, batch_size)
    rows = None if smaller_batches == "refuse" else _rows(found, axes, batch_size)
    if rows is not None:
        whole = final_batch_padding.BatchSpec(found.leaves, axes, rows, split_in)
        found = found.with_leaves(whole.filled())
    validation.check_divides(found, axes, split_in, batch_size)
    if not is_dataset:
        tensors = [tf.convert_to_tensor(each) for each in found.flatten(returned)]
        mask = [] if rows is None else [tf.ones([rows], tf.int32)]
        return InputSource(found, axes, split_in, rows, lambda: [*tensors, *mask], None)
    if rows is not None:
        if steps is not None:
            per_step = replicas if mode == InputPipelineConfig.PER_HOST_V2 else 1
            returned = returned.take(steps * per_step)
        make_whole = (
            final_batch_padding.spread_final_batch
            if smaller_batches == "tile"
            else final_batch_padding.pad_final_batch
        )
        returned = make_whole(_flat(returned, found), whole)
    iterator = tf.compat.v1.data.make_initializable_iterator(returned)

    def following() -> list[Any]:
        element = iterator.get_next()
        return found.flatten(element) if rows is None else list(element)

    return InputSource(found, axes, split_in, rows, following, iterator.initializer)


def _check_tensors_will_do(returned: Any, mode: Any, smaller_batches: str) -> None:
    if mode == InputPipelineConfig.PER_HOST_V2:
        raise InvalidType(
            f"input_fn returned {returned!r:.200}. PER_HOST_V2 takes a batch of its own for each "
            f"replica: return a tf.data.Dataset."
        )
    if smaller_batches == "pad":
        raise InvalidType(
            f"input_fn returned {returned!r:.200}. Predicting needs to see the end of the input: "
            f"return a tf.data.Dataset."
        )


def _axes_of_whole(
    found: TensorNest, axes: tuple[int | None, ...], batch_size: int
) -> tuple[int | None, ...]:
    """The axes of the rows in a batch that no one splits, which need not be the first.

    Programs transpose images to [height, width, channels, rows].
    """
    return tuple(
        axis
        if axis is None or leaf.size(axis) in (None, batch_size)
        else leaf.last_axis_of(batch_size, otherwise=axis)
        for leaf, axis in zip(found.leaves, axes, strict=True)
    )


def _rows(found: TensorNest, axes: tuple[int | None, ...], batch_size: int) -> int:
    """How many rows a whole batch has: as its tensors say, or else as was asked of input_fn."""
    said = {
        leaf: rows
        for leaf, axis in zip(found.leaves, axes, strict=True)
        if axis is not None and (rows := leaf.size(axis)) is not None
    }
    if len(set(said.values())) > 1:
        raise InvalidSetting(
            f"the tensors of input_fn have different numbers of rows: "
            f"{', '.join(map(str, said))}. Give every tensor one row for each example."
        )
    return next(iter(said.values()), batch_size)


def _flat(dataset: Any, found: TensorNest) -> Any:
    is_tuple = type(dataset.element_spec) is tuple

    def flat(*parts: Any) -> tuple[Any, ...]:
        return tuple(found.flatten(parts if is_tuple else parts[0]))

    return dataset.map(tf.autograph.experimental.do_not_convert(flat))


def _specs(returned: Any) -> Any:
    return nest.map_structure(lambda each: _spec(each, returned), returned)


def _spec(value: Any, returned: Any) -> Any:
    if value is None:
        return None
    if not tf.is_tensor(value):
        raise InvalidType(
            f"input_fn returned {returned!r:.200}, in which {value!r:.100} is no tensor. Return "
            f"a tf.data.Dataset, or tensors as (features, labels)."
        )
    if isinstance(value, tf.Variable):
        return tf.TensorSpec(value.shape, value.dtype)
    return tf.type_spec_from_value(value)
