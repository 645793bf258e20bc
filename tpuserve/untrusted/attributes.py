"""Finds unsafe attributes of ops that are otherwise safe.

With such an attribute, an op opens files, calls native code or starts many threads.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.graph.attributes import attribute_value

# The largest number of threads that a single op of an untrusted model may start. If the system
# refuses to start more threads, TensorFlow ends the process.
_MAX_THREADS = 1024
# The first bytes of MLIR bytecode. The StableHLO module of an XlaCallModule op is refused if it
# contains the text "custom_call", because the StableHLO op of this name calls native code. A module
# in text form instead of bytecode is always refused, because escape sequences could hide the name.
_MLIR_BYTECODE = b"ML\xefR"


def _is_standard_stream(value: bytes) -> bool:
    return value in (b"", b"stderr", b"stdout")


def _is_empty(value: bytes) -> bool:
    return not value


def _is_no_descriptor_file(value: bytes) -> bool:
    return value in (b"", b"local://") or value.startswith(b"bytes://")


def _calls_no_native_code(value: bytes) -> bool:
    return value.startswith(_MLIR_BYTECODE) and b"custom_call" not in value


def _starts_few_threads(value: int) -> bool:
    return value <= _MAX_THREADS


# Op type → the attribute to check: its name, the field of AttrValue that has its value, and the
# function that returns whether a value is safe.
_CHECKS: Mapping[str, tuple[str, str, Callable[[Any], bool]]] = {
    "Batch": ("num_batch_threads", "i", _starts_few_threads),
    "BatchFunction": ("num_batch_threads", "i", _starts_few_threads),
    "DecodeProtoV2": ("descriptor_source", "s", _is_no_descriptor_file),
    "EncodeProto": ("descriptor_source", "s", _is_no_descriptor_file),
    "FixedUnigramCandidateSampler": ("vocab_file", "s", _is_empty),
    "PrintV2": ("output_stream", "s", _is_standard_stream),
    "XlaCallModule": ("module", "s", _calls_no_native_code),
}


def unsafe_attribute(node: Any) -> str:
    """Return the op type and the name of an unsafe attribute of a NodeDef; "" if it has none.

    The result is a text for an error message, such as "PrintV2 (output_stream)".
    """
    if node.op not in _CHECKS:
        return ""
    name, field, is_safe = _CHECKS[node.op]
    if name not in node.attr:
        return ""
    attribute = attribute_value(node, name)
    # In a function, an attribute can be a placeholder whose value each caller of the function sets.
    # Its AttrValue then has the field "placeholder" and no value. The attribute counts as unsafe.
    if attribute.WhichOneof("value") == field and is_safe(getattr(attribute, field)):
        return ""
    return f"{node.op} ({name})"
