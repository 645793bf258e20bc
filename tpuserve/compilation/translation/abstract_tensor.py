"""What is known of a tensor before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import full_type_pb2

from tpuserve.tensorflow_internals import cpp_shape_inference_pb2, handle_data_util

Shape = tuple[int | None, ...] | None


@dataclass(frozen=True)
class VariableSpec:
    """A variable that a handle leads to.

    Attributes:
      name: what tells it from others of the graph.
      dtype: of its elements.
      shape: None per unknown dimension; None as a whole where the rank is unknown.
    """

    name: str
    dtype: Any
    shape: Shape


@dataclass(frozen=True)
class AbstractTensor:
    """A tensor that goes into a call or comes out of one.

    Attributes:
      dtype: of its elements.
      shape: None per unknown dimension; None as a whole where the rank is unknown.
      variable: where the tensor is the handle of a variable, that variable.
    """

    dtype: Any
    shape: Shape
    variable: VariableSpec | None = None

    def refined(self, shape: Shape) -> "AbstractTensor":
        """The same with the dimensions that another shape knows of it."""
        if shape is None or (self.shape is not None and len(self.shape) != len(shape)):
            return self
        known = self.shape or (None,) * len(shape)
        merged = tuple(b if a is None else a for a, b in zip(known, shape, strict=True))
        return AbstractTensor(self.dtype, merged, self.variable)

    def with_rows(self, count: int) -> "AbstractTensor":
        """The same with another first dimension."""
        if not self.shape:
            return self
        return AbstractTensor(self.dtype, (count, *self.shape[1:]), self.variable)


def describe_tensor(tensor: Any) -> AbstractTensor:
    """What is known of a tensor in a graph."""
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return AbstractTensor(tensor.dtype, shape, _variable_of(tensor))


def make_placeholder(argument: AbstractTensor) -> Any:
    """A placeholder, in the default graph, of which that much is known."""
    made = tf.compat.v1.placeholder(argument.dtype, argument.shape)
    if argument.variable is not None:
        handle_data = cpp_shape_inference_pb2.CppShapeInferenceResult.HandleData(is_set=True)
        handle_data.shape_and_type.add(
            dtype=argument.variable.dtype.as_datatype_enum,
            shape=tf.TensorShape(argument.variable.shape).as_proto(),
            type=full_type_pb2.FullTypeDef(),
        )
        handle_data_util.set_handle_data(made, handle_data)
    return made


def merge(ones: Sequence[AbstractTensor], others: Sequence[AbstractTensor]) -> list[AbstractTensor]:
    """What holds of both, pair by pair."""
    return [
        one if one == other else AbstractTensor(one.dtype, _merge_shapes(one.shape, other.shape))
        for one, other in zip(ones, others, strict=True)
    ]


def _merge_shapes(one: Shape, other: Shape) -> Shape:
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _variable_of(tensor: Any) -> VariableSpec | None:
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


def shape_from_proto(shape: Any) -> Shape:
    """What a TensorShapeProto says."""
    if shape.unknown_rank:
        return None
    return tuple(None if each.size < 0 else each.size for each in shape.dim)
