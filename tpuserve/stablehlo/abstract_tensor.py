"""Defines `AbstractTensor`: what is known of a tensor before the graph runs, such as its shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import full_type_pb2

from tpuserve.tensorflow_internals import cpp_shape_inference_pb2, handle_data_util

Shape = tuple[int | None, ...] | None
"""The size of each dimension, None if unknown. The whole Shape is None if the rank is unknown."""


@dataclass(frozen=True)
class VariableSpec:
    """Describes a variable of a graph by its name, dtype and shape.

    Attributes:
      shape: The size of each dimension, None for an unknown size. None instead of a tuple means
        that the rank is unknown.
    """

    name: str
    dtype: Any
    shape: Shape


@dataclass(frozen=True)
class AbstractTensor:
    """The properties of a tensor that are known without running the graph.

    Attributes:
      shape: The size of each dimension, None for an unknown size. None instead of a tuple means
        that the rank is unknown.
      variable: If the tensor is the resource handle of a variable, the variable; else None.
    """

    dtype: Any
    shape: Shape
    variable: VariableSpec | None = None

    def refine(self, shape: Shape) -> "AbstractTensor":
        """Return a copy in which the sizes in `shape` replace unknown sizes.

        If `shape` has another rank, return the tensor unchanged.
        """
        if shape is None or (self.shape is not None and len(self.shape) != len(shape)):
            return self
        known = self.shape or (None,) * len(shape)
        merged = tuple(
            other if size is None else size for size, other in zip(known, shape, strict=True)
        )
        return AbstractTensor(self.dtype, merged, self.variable)

    def with_rows(self, count: int) -> "AbstractTensor":
        """Return a copy whose first dimension, the batch, has the size `count`.

        A scalar, or a tensor of unknown rank, is returned unchanged.
        """
        if not self.shape:
            return self
        return AbstractTensor(self.dtype, (count, *self.shape[1:]), self.variable)


def describe_tensor(tensor: Any) -> AbstractTensor:
    """Return the AbstractTensor that describes a tensor of a tf.Graph."""
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return AbstractTensor(tensor.dtype, shape, _find_variable(tensor))


def make_placeholder(argument: AbstractTensor) -> Any:
    """Create a placeholder in the default graph with the properties of an AbstractTensor."""
    placeholder = tf.compat.v1.placeholder(argument.dtype, argument.shape)
    if argument.variable is not None:
        handle_data = cpp_shape_inference_pb2.CppShapeInferenceResult.HandleData(is_set=True)
        handle_data.shape_and_type.add(
            dtype=argument.variable.dtype.as_datatype_enum,
            shape=tf.TensorShape(argument.variable.shape).as_proto(),
            type=full_type_pb2.FullTypeDef(),
        )
        handle_data_util.set_handle_data(placeholder, handle_data)
    return placeholder


def merge(
    first: Sequence[AbstractTensor], second: Sequence[AbstractTensor]
) -> list[AbstractTensor]:
    """Merge the results of two branches, or the inputs and results of a loop's body.

    The i-th tensor of the result describes both the i-th tensor of `first` and that of `second`.
    """
    return [
        tensor
        if tensor == other
        else AbstractTensor(tensor.dtype, _merge_shapes(tensor.shape, other.shape))
        for tensor, other in zip(first, second, strict=True)
    ]


def sizes_of(shape: Shape) -> tuple[int, ...]:
    """Return a shape with 0 in place of unknown sizes; () if the rank is unknown."""
    return tuple(size or 0 for size in shape or ())


def shape_from_proto(shape: Any) -> Shape:
    """Convert a TensorShapeProto to a tuple of sizes, in which None stands for an unknown size."""
    if shape.unknown_rank:
        return None
    return tuple(None if dimension.size < 0 else dimension.size for dimension in shape.dim)


def _merge_shapes(first: Shape, second: Shape) -> Shape:
    """Return a shape that fits two shapes: sizes that differ between them become unknown."""
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(size if size == other else None for size, other in zip(first, second, strict=True))


def _find_variable(tensor: Any) -> VariableSpec | None:
    """Return the variable to which a tensor is a resource handle; None for any other tensor."""
    if tensor.dtype != tf.resource:
        return None
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    if tensor.op.type != "VarHandleOp":
        return None
    return VariableSpec(
        tensor.op.get_attr("shared_name").decode() or tensor.op.name,
        tensor.op.get_attr("dtype"),
        shape_from_proto(tensor.op.get_attr("shape")),
    )
