"""Describes the nested structure of a batch, and converts the batch to a flat list and back.

The infeed transfers a flat list of tensors; on the core, the structure is rebuilt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.inputs.input_pipeline import split_features_and_labels
from trainer.tensorflow_internals import nest

# The keys of a feature that is looked up in an embedding table. Such a feature is a dict of two
# tensors: the ids, and the weights of the ids.
PADDED_IDS = "padded_ids"
PADDED_WEIGHTS = "padded_weights"


@dataclass(frozen=True)
class TensorLeaf:
    """The path and the spec of one tensor in a batch.

    Attributes:
      path: the path as a program would write it, such as features['age'].
      padding: the value of the columns that are added to a tensor whose number of columns differs
        from batch to batch. None if the number of columns must be fixed.
    """

    path: str
    spec: Any
    padding: float | None = None

    def __str__(self) -> str:
        return f"{self.path} ({self.spec.dtype.name}{format_shape(self.spec.shape)})"

    def size(self, axis: int) -> int | None:
        """Return the tensor's size along an axis; None if the size is unknown."""
        # Convert the shape to a list, in which an unknown size is None. With TensorFlow 1's shape
        # behaviour, shape[axis] would be a Dimension, which is never None.
        size: int | None = self.spec.shape.as_list()[axis]
        return size

    def last_axis_of_size(self, size: int, default: int) -> int:
        """Return the last axis along which the tensor's size is `size`, or else `default`."""
        sizes = self.spec.shape.as_list()
        return max((axis for axis in range(len(sizes)) if sizes[axis] == size), default=default)

    def with_dimension(self, axis: int, size: int) -> "TensorLeaf":
        """Return a copy whose shape has another size along one axis."""
        shape = self.spec.shape.as_list()
        shape[axis] = size
        return replace(self, spec=tf.TensorSpec(shape, self.spec.dtype))

    def part(self, axis: int, parts: int) -> "TensorLeaf":
        """Return the path and spec of one of the equal parts into which the tensor is split."""
        return self.with_dimension(axis, self.spec.shape.as_list()[axis] // parts)


@dataclass(frozen=True)
class TensorNest:
    """The nested structure of the features and labels of a batch.

    Attributes:
      template: (features, labels), with a TensorLeaf in place of each tensor. A value that is None
        in the batch is None in the template.
      leaves: describe the tensors in the order in which the infeed transfers them: features first,
        each flattened as by tf.nest.
    """

    template: tuple[Any, Any]
    leaves: tuple[TensorLeaf, ...]

    @property
    def has_varying_sizes(self) -> bool:
        """Whether there is a tensor whose number of columns differs from batch to batch."""
        return any(leaf.padding is not None and leaf.size(1) is None for leaf in self.leaves)

    def flatten(self, batch: Any) -> list[Any]:
        """Return the tensors of a batch from an input_fn or a Dataset, in the order of `leaves`."""
        pair = split_features_and_labels(batch)
        return [tensor for tensor in nest.flatten(pair) if tensor is not None]

    def pack(self, tensors: Sequence[Any]) -> tuple[Any, Any]:
        """Return a flat list of tensors as (features, labels), nested like a batch of the input."""
        remaining = iter(tensors)
        leaves = nest.flatten(self.template)
        return nest.pack_sequence_as(
            self.template, [None if leaf is None else next(remaining) for leaf in leaves]
        )

    def with_leaves(self, leaves: Sequence[TensorLeaf]) -> "TensorNest":
        """Return a copy with the same nested structure, but other descriptions of the tensors."""
        return TensorNest(self.pack(leaves), tuple(leaves))


def build_tensor_nest(specs: Any) -> TensorNest:
    """Build the TensorNest of a batch from the specs of its tensors."""
    template = split_features_and_labels(specs)
    flat: list[TensorLeaf | None] = []
    for path, spec in nest.flatten_with_tuple_paths(template):
        # A Dataset represents None by a NoneTensorSpec. Compare the name of the class, because
        # TensorFlow does not export the class.
        if spec is None or type(spec).__name__ == "NoneTensorSpec":
            flat.append(None)
            continue
        if not isinstance(spec, tf.TypeSpec):
            raise InvalidType(
                f"{_format_path(path)} of the input is {spec!r:.200}, which is not a tensor. "
                f"Return a tf.data.Dataset from input_fn, or tensors as (features, labels)."
            )
        padding = {PADDED_IDS: -1, PADDED_WEIGHTS: 0}.get(path[-1])
        flat.append(TensorLeaf(_format_path(path), spec, padding))
    leaves = tuple(leaf for leaf in flat if leaf is not None)
    if not leaves:
        raise InvalidSetting(
            f"the input is {specs!r:.200}: there is no tensor in it. Give features, or the pair "
            f"(features, labels), with at least one tensor."
        )
    return TensorNest(nest.pack_sequence_as(template, flat), leaves)


def check_same_tensors(first: TensorNest, other: TensorNest, call: str) -> None:
    """Check that two calls of an input_fn returned the same names, dtypes and shapes."""
    actual = {leaf.path: leaf for leaf in other.leaves}
    expected = {leaf.path: leaf for leaf in first.leaves}
    differences = [
        *(f"{leaf} is missing" for leaf in expected.values() if leaf.path not in actual),
        *(f"{leaf} is new" for leaf in actual.values() if leaf.path not in expected),
        *(
            f"{expected[path]} is {actual[path]}"
            for path in expected
            if path in actual and str(expected[path]) != str(actual[path])
        ),
    ]
    if differences:
        raise InvalidSetting(
            f"{call} gave other tensors than the first call of input_fn: "
            f"{'; '.join(differences)}. Every call must give the same names, types and shapes: "
            f"all replicas run one program."
        )


def format_shape(shape: Any) -> str:
    """Format a shape, for example as [8, ?]."""
    if shape.rank is None:
        return " of unknown rank"
    sizes = ("?" if size is None else str(size) for size in shape.as_list())
    return f"[{', '.join(sizes)}]"


def _format_path(path: tuple[Any, ...]) -> str:
    root, *keys = path
    return ("features", "labels")[root] + "".join(f"[{key!r}]" for key in keys)
