"""How the tensors of a batch are nested: taken apart for the infeed, and put together after it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.inputs.input_pipeline import split_features_and_labels
from trainer.tensorflow_internals import nest


@dataclass(frozen=True)
class TensorLeaf:
    """One tensor of a batch.

    Attributes:
      path: where it is, as a program would write it: features['age'].
      spec: its TensorSpec, or the TypeSpec of what is no dense tensor.
    """

    path: str
    spec: Any

    def __str__(self) -> str:
        return f"{self.path} ({self.spec.dtype.name}{format_shape(self.spec.shape)})"

    def size(self, axis: int) -> int | None:
        """The size along one axis; None where it is not known."""
        # TensorFlow 1's own dimensions, where its behaviour is on, are never None.
        size: int | None = self.spec.shape.as_list()[axis]
        return size

    def last_axis_of(self, size: int, otherwise: int) -> int:
        """The last axis with this size; another where none has it."""
        sizes = self.spec.shape.as_list()
        return max((axis for axis, each in enumerate(sizes) if each == size), default=otherwise)

    def with_dimension(self, axis: int, size: int) -> "TensorLeaf":
        """The same tensor with another size along one axis."""
        shape = self.spec.shape.as_list()
        shape[axis] = size
        return replace(self, spec=tf.TensorSpec(shape, self.spec.dtype))

    def part(self, axis: int, parts: int) -> "TensorLeaf":
        """One of so many equal parts along one axis, whose size is known."""
        return self.with_dimension(axis, self.spec.shape.as_list()[axis] // parts)


@dataclass(frozen=True)
class TensorNest:
    """The nests of features and labels.

    Attributes:
      template: (features, labels) with a Leaf, or None, in each place.
      leaves: the tensors in the order they travel in: features first, as tf.nest flattens.
    """

    template: tuple[Any, Any]
    leaves: tuple[TensorLeaf, ...]

    def flatten(self, batch: Any) -> list[Any]:
        """The tensors of what an input_fn or a Dataset gave, in the order of the leaves."""
        return [each for each in nest.flatten(split_features_and_labels(batch)) if each is not None]

    def pack(self, tensors: Sequence[Any]) -> tuple[Any, Any]:
        """Features and labels, nested as the input was."""
        rest = iter(tensors)
        places = nest.flatten(self.template)
        return nest.pack_sequence_as(
            self.template, [None if place is None else next(rest) for place in places]
        )

    def with_leaves(self, leaves: Sequence[TensorLeaf]) -> "TensorNest":
        """The same nests around other tensors."""
        return TensorNest(self.pack(leaves), tuple(leaves))


def build_tensor_nest(specs: Any) -> TensorNest:
    """The structure of a batch.

    Args:
      specs: features or (features, labels), a TypeSpec in place of each tensor.

    Raises:
      InvalidType: something in the nest is no tensor.
      InvalidSetting: there is no tensor at all, or neither features nor a pair.
    """
    template = split_features_and_labels(specs)
    places: list[TensorLeaf | None] = []
    for path, spec in nest.flatten_with_tuple_paths(template):
        # A Dataset has a spec of its own for None, which no name of TensorFlow's leads to.
        if spec is None or type(spec).__name__ == "NoneTensorSpec":
            places.append(None)
            continue
        if not isinstance(spec, tf.TypeSpec):
            raise InvalidType(
                f"{_name(path)} of the input is {spec!r:.200}, which is no tensor. Return a "
                f"tf.data.Dataset from input_fn, or tensors as (features, labels)."
            )
        places.append(TensorLeaf(_name(path), spec))
    leaves = tuple(each for each in places if each is not None)
    if not leaves:
        raise InvalidSetting(
            f"the input is {specs!r:.200}: there is no tensor in it. Give features, or the pair "
            f"(features, labels), with at least one tensor."
        )
    return TensorNest(nest.pack_sequence_as(template, places), leaves)


def check_same_tensors(first: TensorNest, other: TensorNest, call: str) -> None:
    """Demands that two calls of an input_fn gave the same.

    Args:
      first: what the first call gave.
      other: what another one gave.
      call: names the other call in the error.

    Raises:
      InvalidSetting: the tensors have other names, types or shapes.
    """
    found = {each.path: each for each in other.leaves}
    wanted = {each.path: each for each in first.leaves}
    differences = [
        *(f"{each} is missing" for each in wanted.values() if each.path not in found),
        *(f"{each} is new" for each in found.values() if each.path not in wanted),
        *(
            f"{wanted[path]} is {found[path]}"
            for path in wanted
            if path in found and str(wanted[path]) != str(found[path])
        ),
    ]
    if differences:
        raise InvalidSetting(
            f"{call} gave other tensors than the first call of input_fn: "
            f"{'; '.join(differences)}. Every call must give the same names, types and shapes: "
            f"all replicas run one program."
        )


def format_shape(shape: Any) -> str:
    """A shape as in [8, ?]."""
    if shape.rank is None:
        return " of unknown rank"
    sizes = ("?" if size is None else str(size) for size in shape.as_list())
    return f"[{', '.join(sizes)}]"


def _name(path: tuple[Any, ...]) -> str:
    root, *keys = path
    return ("features", "labels")[root] + "".join(f"[{key!r}]" for key in keys)
