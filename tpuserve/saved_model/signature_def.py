"""Converts TensorFlow's messages of signatures to the classes of the module `signature`."""

from collections.abc import Mapping
from typing import Any

from tpuserve.saved_model import dtypes
from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.saved_model.variables import shape_from_proto


def signature_from_proto(proto: Any) -> Signature:
    """Convert a SignatureDef message to a Signature, whose aliases are sorted.

    A composite tensor, such as a ragged one, gets the dtype of its first component, which has the
    values, and an unknown shape.
    """
    return Signature(_specs(proto.inputs), _specs(proto.outputs), proto.method_name)


def _specs(infos: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {alias: _spec(info) for alias, info in sorted(infos.items())}


def _spec(info: Any) -> TensorSpec:
    components = info.composite_tensor.components
    if components:
        return TensorSpec("", dtypes.dtype_name(components[0].dtype), None)
    shape = shape_from_proto(info.tensor_shape)
    return TensorSpec(info.name, dtypes.dtype_name(info.dtype), shape)
