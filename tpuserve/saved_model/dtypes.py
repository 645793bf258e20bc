"""Lists the numbers, names and sizes of TensorFlow's dtypes, without importing TensorFlow.

Source: tensorflow/core/framework/types.proto.
"""

INT32 = 3
STRING = 7
RESOURCE = 20
VARIANT = 21
UINT64 = 23
WHOLE_NUMBERS = frozenset((3, 9, 10, 22, 23))

DTYPE_NAMES: dict[int, str] = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    11: "qint8",
    12: "quint8",
    13: "qint32",
    14: "bfloat16",
    15: "qint16",
    16: "quint16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    20: "resource",
    21: "variant",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    26: "float8_e4m3fnuz",
    27: "float8_e4m3b11fnuz",
    28: "float8_e5m2fnuz",
    29: "int4",
    30: "uint4",
    31: "int2",
    32: "uint2",
    33: "float4_e2m1fn",
}


def dtype_name(number: int) -> str:
    """Return the name of a dtype by its DataType number, or "type 99" for an unknown number."""
    return DTYPE_NAMES.get(number, f"type {number}")


# Python name of a dtype → its name in error messages of TensorFlow's C++ code, if it is different.
# tpuserve's error messages use the same names as TensorFlow Serving's.
_RUNTIME_NAMES = {"float16": "half", "float32": "float", "float64": "double"}


def runtime_name(name: str) -> str:
    """Return the name of a dtype in TensorFlow's C++ error messages: "float" for "float32"."""
    return _RUNTIME_NAMES.get(name, name)
