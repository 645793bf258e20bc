"""Checks a TensorFlow Lite file that is not trusted, before an interpreter loads it.

Source of the file's fields: tensorflow/lite/schema/schema.fbs.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpuserve.errors import ModelTooLarge, UnsafeModel
from tpuserve.graph import state_writes
from tpuserve.graph.state_writes import Write

LAST_REVIEWED_OP = 209
"""The highest number of a built-in op that was reviewed. Ops of later releases are refused."""

# The built-in ops that can run other code than TensorFlow Lite's kernels, and so are refused.
_REFUSED_OPS = ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES", "STABLEHLO_CUSTOM_CALL")
# The custom ops that TensorFlow Lite itself implements. They only compute, so they are allowed.
# Source: tensorflow/lite/core/kernels/register.cc.
_OWN_CUSTOM_OPS = frozenset({b"AudioSpectrogram", b"Mfcc", b"TFLite_Detection_PostProcess"})
_BITS_IN_BYTE = 8
_MAX_TENSORS, _MAX_RANK = 1_000_000, 64


def check_ops(content: bytes, path: Path) -> None:
    """Check that all ops of a TensorFlow Lite model are known and only compute.

    Other ops could, for example, run code from elsewhere.
    """
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.Model.GetRootAsModel(content, 0)
    unsafe = sorted(set(_find_unsafe_ops(model, schema)))
    if unsafe:
        raise UnsafeModel(
            f"{path} holds ops that are not known to compute only: {', '.join(unsafe)}. Convert "
            f"the model with built-in ops alone; or, if you trust the model, serve it with "
            f"--forbid_unsafe_ops=false."
        )


def check_tensor_sizes(content: bytes, path: Path, max_bytes: int) -> None:
    """Check that the tensors of a TensorFlow Lite model do not take too much memory.

    Args:
      max_bytes: the largest allowed size of all tensors together, without constants. A dimension of
        unknown size counts as 1, as in the interpreter.
    """
    from tensorflow.lite.python import schema_py_generated as schema

    num_bytes = sum(_tensor_sizes(schema.Model.GetRootAsModel(content, 0), schema))
    if num_bytes > max_bytes:
        raise ModelTooLarge(
            f"{path} asks for {num_bytes:,} bytes of tensors; the limit is {max_bytes:,} bytes. "
            f"Convert the model for smaller inputs, or raise --max_constant_bytes if you trust the "
            f"model."
        )


def find_write(content: bytes) -> Write | None:
    """Return how a run of a TensorFlow Lite model changes a state; None if it only reads.

    The state is that of a variable, or of a tensor that an interpreter keeps from run to run, as
    for the state of an LSTM.
    """
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.Model.GetRootAsModel(content, 0)
    assign = schema.BuiltinOperator.ASSIGN_VARIABLE
    for position in range(model.OperatorCodesLength()):
        if model.OperatorCodes(position).BuiltinCode() == assign:
            return Write(state_writes.VARIABLE, "ASSIGN_VARIABLE", "of TensorFlow Lite")
    for graph in map(model.Subgraphs, range(model.SubgraphsLength())):
        for tensor in map(graph.Tensors, range(graph.TensorsLength())):
            if tensor.IsVariable():
                name = (tensor.Name() or b"").decode("utf-8", "replace")
                return Write(state_writes.VARIABLE, "variable tensor", name)
    return None


def _find_unsafe_ops(model: Any, schema: Any) -> Iterator[str]:
    refused = {getattr(schema.BuiltinOperator, name): name for name in _REFUSED_OPS}
    for position in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(position)
        # In files of older schema versions, the number of the op, up to 127, is in the field
        # deprecated_builtin_code, and builtin_code is 0. So use the larger number.
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        if number == schema.BuiltinOperator.CUSTOM:
            name = code.CustomCode() or b""
            if name not in _OWN_CUSTOM_OPS:
                yield name.decode("utf-8", "replace") or "a custom op without a name"
        elif not 0 <= number <= LAST_REVIEWED_OP:
            yield f"built-in op {number}"
        elif number in refused:
            yield refused[number]


def _tensor_sizes(model: Any, schema: Any) -> Iterator[int]:
    """Yield the size in bytes of each non-constant tensor of a model."""
    bits, count = _bits_of_types(schema), 0
    for graph_position in range(model.SubgraphsLength()):
        graph = model.Subgraphs(graph_position)
        for position in range(graph.TensorsLength()):
            tensor = graph.Tensors(position)
            # Limit the number of tensors of all graphs together: in a malicious file, many graphs
            # can share the same tensors, so even a small file can have very many tensors.
            count += 1
            if count > _MAX_TENSORS or tensor.ShapeLength() > _MAX_RANK:
                raise ValueError(f"more than {_MAX_TENSORS} tensors or {_MAX_RANK} dimensions")
            if model.Buffers(tensor.Buffer()).DataLength():
                continue
            sizes = (max(1, tensor.Shape(axis)) for axis in range(tensor.ShapeLength()))
            yield math.prod(sizes) * bits.get(tensor.Type(), _BITS_IN_BYTE) // _BITS_IN_BYTE


def _bits_of_types(schema: Any) -> dict[int, int]:
    """Return a mapping: number of a TensorType → bits of an element, such as 32 for FLOAT32."""
    bits = {}
    for name, number in vars(schema.TensorType).items():
        digits = name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        if isinstance(number, int) and digits.isdecimal():
            bits[number] = int(digits)
    return bits
