"""What stands in for TensorFlow in a process that prepares graphs and runs none.

To import TensorFlow takes seconds, and hundreds of megabytes. Its messages can be had without it;
what lowering asks for beside them is the definitions of ops, which a process that has TensorFlow
hands over, and constants of a few numbers.
"""

import functools
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tensorflow.core.framework.tensor_pb2 import TensorProto


@functools.cache
def serialized_op_list() -> bytes:
    """The ops that TensorFlow knows in this process: a serialised OpList."""
    from tensorflow.python.client import pywrap_tf_session

    return bytes(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))


def install_stub() -> None:
    """Has TensorFlow's messages be imported without TensorFlow, here and from now on."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is not None and spec.submodule_search_locations is not None:
        package: Any = ModuleType("tensorflow")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["tensorflow"] = package


def install_op_registry(serialised: bytes) -> None:
    """Has lowering find the definitions of ops, and make and read constants, without it too.

    Args:
      serialised: as of `definitions`.
    """
    from tensorflow.core.framework.op_def_pb2 import OpList

    known = {each.name: each for each in OpList.FromString(serialised).op}
    registry: Any = ModuleType("op_def_registry")
    registry.get = known.get
    tensors: Any = ModuleType("tensor_util")
    tensors.make_tensor_proto = _encode
    tensors.MakeNdarray = _decode
    framework: Any = ModuleType("tensorflow.python.framework")
    framework.op_def_registry, framework.tensor_util = registry, tensors
    python: Any = ModuleType("tensorflow.python")
    python.framework = framework
    for each in (python, framework):
        sys.modules[each.__name__] = each


def _encode(number: int) -> "TensorProto":
    from tensorflow.core.framework.tensor_pb2 import TensorProto
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
    from tensorflow.core.framework.types_pb2 import DT_INT32

    return TensorProto(dtype=DT_INT32, tensor_shape=TensorShapeProto(), int_val=[number])


def _decode(proto: "TensorProto") -> np.ndarray[Any, Any]:
    from tensorflow.core.framework.types_pb2 import DT_INT32

    # Of any other type it would be no list of replicas.
    if proto.dtype != DT_INT32:
        raise TypeError(f"a constant of type {proto.dtype} is none that is expected here")
    shape = [each.size for each in proto.tensor_shape.dim]
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, np.int32).reshape(shape)
    size = int(np.prod(shape))
    # A list that is too short repeats its last number.
    given = list(proto.int_val) or [0]
    return np.array((given + given[-1:] * size)[:size], np.int32).reshape(shape)
