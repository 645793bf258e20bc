"""A stub `tensorflow` package for a process that plans the load of a model, but runs no graph.

The import of TensorFlow takes seconds and hundreds of megabytes. Planning a load needs only
TensorFlow's protocol buffer messages, which can be imported alone.
"""

import functools
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuserve.saved_model.op_packages import ImportedOps

if TYPE_CHECKING:
    from tensorflow.core.framework.tensor_pb2 import TensorProto


@functools.lru_cache(maxsize=1)
def serialized_op_list(imported_ops: ImportedOps) -> bytes:
    """Return the definitions of all ops in this process, as a serialised OpList.

    Args:
      imported_ops: the ops that were imported: after a change the definitions are read anew.
    """
    from tpuserve.tensorflow_internals import c_api

    return bytes(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))


def install_stub() -> None:
    """Install an empty package as `tensorflow` in this process, so that no TensorFlow code runs.

    Modules of protobuf messages, such as `tensorflow.core.framework.graph_pb2`, can be imported
    from it.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is not None and spec.submodule_search_locations is not None:
        package: Any = ModuleType("tensorflow")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["tensorflow"] = package


def install_op_registry(serialized: bytes) -> None:
    """Add to the stub package those modules of `tensorflow.python` that the lowering uses.

    The lowering replaces TPU ops by CPU ops.
    """
    from tensorflow.core.framework.op_def_pb2 import OpList

    op_defs = {op_def.name: op_def for op_def in OpList.FromString(serialized).op}
    op_def_registry: Any = ModuleType("tensorflow.python.framework.op_def_registry")
    op_def_registry.get = op_defs.get
    tensor_util: Any = ModuleType("tensorflow.python.framework.tensor_util")
    tensor_util.make_tensor_proto = _make_tensor_proto
    tensor_util.MakeNdarray = _make_ndarray
    parents = (ModuleType("tensorflow.python"), ModuleType("tensorflow.python.framework"))
    for module in (*parents, op_def_registry, tensor_util):
        sys.modules[module.__name__] = module


def _make_tensor_proto(number: int) -> "TensorProto":
    """Return an int32 scalar as a TensorProto, in place of TensorFlow's make_tensor_proto."""
    from tensorflow.core.framework.tensor_pb2 import TensorProto
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
    from tensorflow.core.framework.types_pb2 import DT_INT32

    return TensorProto(dtype=DT_INT32, tensor_shape=TensorShapeProto(), int_val=[number])


def _make_ndarray(proto: "TensorProto") -> np.ndarray[Any, Any]:
    """Return an int32 TensorProto as an array, in place of TensorFlow's MakeNdarray."""
    from tensorflow.core.framework.types_pb2 import DT_INT32

    if proto.dtype != DT_INT32:
        raise TypeError(f"expected a constant of type DT_INT32 ({DT_INT32}), got {proto.dtype}")
    shape = [dimension.size for dimension in proto.tensor_shape.dim]
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, np.int32).reshape(shape)
    size = int(np.prod(shape))
    # A TensorProto may have fewer values than the tensor has elements. The last value then stands
    # for all remaining elements.
    numbers = list(proto.int_val) or [0]
    return np.array((numbers + numbers[-1:] * size)[:size], np.int32).reshape(shape)
