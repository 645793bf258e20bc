"""Divides each input tensor among the cores of one replica, for model parallelism."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.infeed.tensor_nest import TensorLeaf, TensorNest, format_shape
from trainer.tensorflow_internals import nest, tpu_feed

_Dims = tuple[int, ...] | None


@dataclass(frozen=True)
class InputPartition:
    """Describes how one replica's input tensors are divided among the replica's cores.

    Attributes:
      dims: for each tensor the number of parts along each dimension; the parts go to the cores in
        row-major order. None in place of the numbers feeds the whole tensor to every core.
    """

    dims: tuple[_Dims, ...]
    cores: int

    def split(self, tensors: Sequence[Any]) -> list[list[Any]]:
        """Return for each core of a replica the list of tensors to feed; a list may be empty."""
        parts_by_core: list[list[Any]] = [[] for _ in range(self.cores)]
        for tensor, dims in zip(tensors, self._all_dims(tensors), strict=True):
            tensor_parts = tpu_feed.partition_or_replicate_on_host(tensor, dims)
            # Let zip stop at the shorter sequence: `tensor_parts` is infinite for a tensor that
            # every core receives, and has one part for a tensor that only the first core receives.
            for core_parts, tensor_part in zip(parts_by_core, tensor_parts, strict=False):
                core_parts.append(tensor_part)
        return parts_by_core

    def tag_sharding(self, tensors: Sequence[Any]) -> list[Any]:
        """Return a replica's dequeued tensors, tagged with their sharding for XLA."""
        return list(
            tpu_feed.tag_sharding_attribute_for_dequeued_tensors(
                list(tensors),
                [None if dims is None else list(dims) for dims in self._all_dims(tensors)],
            )
        )

    def _all_dims(self, tensors: Sequence[Any]) -> list[_Dims]:
        # After the tensors there may be a mask, which marks padding. Feed the whole mask to every
        # core.
        return [*self.dims, *[None] * (len(tensors) - len(self.dims))]


def build_partition(
    input_partition_dims: Any, shard_nest: TensorNest, cores: int
) -> InputPartition:
    """Build the InputPartition that TPUConfig.input_partition_dims describes.

    Args:
      input_partition_dims: a list of one or two nested structures, for features and for labels. In
        place of each tensor they have a list with the number of parts along each dimension, or
        None.
    """
    dims: list[_Dims] = []
    nests = [*input_partition_dims, None][:2]
    for index, (dims_nest, template) in enumerate(zip(nests, shard_nest.template, strict=True)):
        leaves = [leaf for leaf in nest.flatten(template) if leaf is not None]
        flat_dims = _flatten_dims(dims_nest, template, index) if leaves else []
        for leaf, leaf_dims in zip(leaves, flat_dims, strict=True):
            dims.append(None if leaf_dims is None else tuple(leaf_dims))
            _check_dims(leaf, dims[-1], cores)
    return InputPartition(tuple(dims), cores)


def _flatten_dims(dims_nest: Any, template: Any, index: int) -> list[Any]:
    """Return the numbers of parts of each tensor of the features or of the labels."""
    name = ("features", "labels")[index]
    leaves = nest.flatten(template)
    if dims_nest is None:
        return [None] * sum(leaf is not None for leaf in leaves)
    try:
        flat_dims = nest.flatten_up_to(template, dims_nest, check_types=False)
        dims = [dims for dims, leaf in zip(flat_dims, leaves, strict=True) if leaf is not None]
        if not all(leaf_dims is None or _are_numbers(leaf_dims) for leaf_dims in dims):
            raise TypeError(f"{dims} has something else than a list of whole numbers.")
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"input_partition_dims[{index}] is {dims_nest!r}, which is not nested as the {name} of "
            f"input_fn are: {error} Give one list, or None, for each of the tensors."
        ) from error
    return dims


def _are_numbers(dims: Any) -> bool:
    return isinstance(dims, (list, tuple)) and all(type(size) is int for size in dims)


def _check_dims(leaf: TensorLeaf, dims: _Dims, cores: int) -> None:
    if dims is None:
        return
    shape = format_shape(leaf.spec.shape)
    if any(size < 1 for size in dims):
        raise InvalidSetting(
            f"input_partition_dims has {list(dims)} for {leaf.path}. All dims must be >= 1."
        )
    if prod(dims) == 1:
        return
    if prod(dims) != cores:
        raise InvalidSetting(
            f"input_partition_dims has {list(dims)} for {leaf.path}: {prod(dims)} parts, where "
            f"num_cores_per_replica is {cores}. The product must be equal to it, or 1."
        )
    if len(dims) != leaf.spec.shape.rank:
        raise InvalidSetting(
            f"input_partition_dims has {list(dims)} for {leaf.path}, a shard of which has shape "
            f"{shape}. Give one number for each dimension: {leaf.spec.shape.rank}."
        )
