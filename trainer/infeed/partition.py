"""One replica on several cores: which part of each tensor each of its logical cores is fed."""

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
    """How the tensors of one replica are spread over its logical cores.

    Attributes:
      dims: per tensor the parts along each dimension, logical cores numbered with the last
        dimension fastest; None gives the whole tensor to every core, all ones to the first.
      cores: how many cores a replica has.
    """

    dims: tuple[_Dims, ...]
    cores: int

    def parts(self, tensors: Sequence[Any]) -> list[list[Any]]:
        """For each logical core what it is fed, which may be nothing."""
        shares: list[list[Any]] = [[] for _ in range(self.cores)]
        for tensor, dims in zip(tensors, self._all_dims(tensors), strict=True):
            parts = tpu_feed.partition_or_replicate_on_host(tensor, dims)
            # Replicated parts have no end, and a tensor in one part is the first core's.
            for share, part in zip(shares, parts, strict=False):
                share.append(part)
        return shares

    def tag(self, tensors: Sequence[Any]) -> list[Any]:
        """Tells XLA how the tensors that a replica dequeued are spread."""
        return list(
            tpu_feed.tag_sharding_attribute_for_dequeued_tensors(
                list(tensors),
                [None if each is None else list(each) for each in self._all_dims(tensors)],
            )
        )

    def _all_dims(self, tensors: Sequence[Any]) -> list[_Dims]:
        # A mask over the rows may follow; every core has it whole.
        return [*self.dims, *[None] * (len(tensors) - len(self.dims))]


def build_partition(input_partition_dims: Any, structure: TensorNest, cores: int) -> InputPartition:
    """The partition that a TPUConfig asks for.

    Args:
      input_partition_dims: one or two nests, for features and for labels, with a list of parts
        along each dimension, or None, in place of each tensor; see TPUConfig.
      structure: of one replica's shard.
      cores: num_cores_per_replica.

    Raises:
      InvalidSetting: names the tensor, or which of the nests is not as the input is.
    """
    dims: list[_Dims] = []
    given = [*input_partition_dims, None][:2]
    for index, (part, template) in enumerate(zip(given, structure.template, strict=True)):
        leaves = [each for each in nest.flatten(template) if each is not None]
        found = _flatten(part, template, index) if leaves else []
        for leaf, each in zip(leaves, found, strict=True):
            dims.append(None if each is None else tuple(each))
            _check(leaf, dims[-1], cores)
    return InputPartition(tuple(dims), cores)


def _flatten(part: Any, template: Any, index: int) -> list[Any]:
    name = ("features", "labels")[index]
    if part is None:
        return [None] * sum(each is not None for each in nest.flatten(template))
    places = nest.flatten(template)
    try:
        found = nest.flatten_up_to(template, part, check_types=False)
        dims = [each for each, place in zip(found, places, strict=True) if place is not None]
        if not all(each is None or _are_numbers(each) for each in dims):
            raise TypeError(f"{dims} has something else than a list of whole numbers.")
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"input_partition_dims[{index}] is {part!r}, which is not nested as the {name} of "
            f"input_fn are: {error} Give one list, or None, for each of the tensors."
        ) from error
    return dims


def _are_numbers(dims: Any) -> bool:
    return isinstance(dims, (list, tuple)) and all(type(each) is int for each in dims)


def _check(leaf: TensorLeaf, dims: _Dims, cores: int) -> None:
    if dims is None:
        return
    shape = format_shape(leaf.spec.shape)
    if any(each < 1 for each in dims):
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
            f"{shape}. Give as many numbers as it has dimensions, {leaf.spec.shape.rank}."
        )
