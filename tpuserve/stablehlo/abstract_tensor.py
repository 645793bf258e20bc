"""Abstract tensors: the type, shape and variable of a tensor, known without running the graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import full_type_pb2

from tpuserve.tensorflow_internals import cpp_shape_inference_pb2, handle_data_util

Shape = tuple[int | None, ...] | None
"""One size for each dimension, None if it is unknown; None as a whole for an unknown rank."""


@dataclass(frozen=True)
class VariableSpec:
    """The name, type and shape of a variable that a resource handle refers to.

    Attributes:
      name: Name that is unique in the graph.
      dtype: Type of the elements.
      shape: Size of each dimension, None if unknown; or None for an unknown rank.
    """

    name: str
    dtype: Any
    shape: Shape


@dataclass(frozen=True)
class AbstractTensor:
    """The properties of a tensor that are known without running the graph.

    Attributes:
      dtype: Type of the elements.
      shape: Size of each dimension, None if unknown; or None for an unknown rank.
      variable: The variable, if the tensor is the resource handle of a variable; else None.
    """

    dtype: Any
    shape: Shape
    variable: VariableSpec | None = None

    def refine(self, shape: Shape) -> "AbstractTensor":
        """Return this tensor with its unknown dimensions taken from `shape`.

        A `shape` of another rank changes nothing.
        """
        if shape is None or (self.shape is not None and len(self.shape) != len(shape)):
            return self
        known = self.shape or (None,) * len(shape)
        merged = tuple(
            other if size is None else size for size, other in zip(known, shape, strict=True)
        )
        return AbstractTensor(self.dtype, merged, self.variable)

    def with_rows(self, count: int) -> "AbstractTensor":
        """Return this tensor with a first dimension of `count`; a scalar is returned unchanged."""
        if not self.shape:
            return self
        return AbstractTensor(self.dtype, (count, *self.shape[1:]), self.variable)


def describe_tensor(tensor: Any) -> AbstractTensor:
    """Return what is known of a tensor of a tf.Graph, as an abstract tensor."""
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return AbstractTensor(tensor.dtype, shape, _find_variable(tensor))


def make_placeholder(argument: AbstractTensor) -> Any:
    """Create a placeholder with the properties of an abstract tensor, in the default graph."""
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
    """Merge two lists of abstract tensors, such as the results of two branches, pair by pair.

    A merged tensor keeps the dimensions on which the pair agrees; the others become unknown.
    """
    return [
        tensor
        if tensor == other
        else AbstractTensor(tensor.dtype, _merge_shapes(tensor.shape, other.shape))
        for tensor, other in zip(first, second, strict=True)
    ]


def sizes_of(shape: Shape) -> tuple[int, ...]:
    """Return the sizes of a shape, with 0 for an unknown one; () for an unknown rank."""
    return tuple(size or 0 for size in shape or ())


def shape_from_proto(shape: Any) -> Shape:
    """Convert a TensorShapeProto to a tuple, None for unknown sizes; None for an unknown rank."""
    if shape.unknown_rank:
        return None
    return tuple(None if dimension.size < 0 else dimension.size for dimension in shape.dim)


def _merge_shapes(first: Shape, second: Shape) -> Shape:
    """Return a shape of the dimensions on which two shapes agree; the others become unknown."""
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(size if size == other else None for size, other in zip(first, second, strict=True))


def _find_variable(tensor: Any) -> VariableSpec | None:
    """Return the variable if a tensor is the resource handle of a variable, else None."""
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
