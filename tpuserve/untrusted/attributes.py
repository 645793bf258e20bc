"""Finds attributes that let a harmless op open files, call native code or start many threads."""

from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.graph.attributes import attribute_value

# The largest number of threads that one op may start. TensorFlow ends the process when the system
# refuses to start a thread.
_MAX_THREADS = 1024
# The first bytes of MLIR bytecode. MLIR in text form is refused, because it can hide the name
# "custom_call" behind escapes.
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


# Op → the name of the attribute to check, the AttrValue field with its value, and the check.
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
    """Return the op of a NodeDef and its unsafe attribute, or "" if no attribute is unsafe."""
    if node.op not in _CHECKS:
        return ""
    name, field, is_safe = _CHECKS[node.op]
    if name not in node.attr:
        return ""
    attribute = attribute_value(node, name)
    # If the attribute does not have this field, it is a placeholder, whose value each caller of the
    # function sets. The value is unknown here, so the attribute counts as unsafe.
    if attribute.WhichOneof("value") == field and is_safe(getattr(attribute, field)):
        return ""
    return f"{node.op} ({name})"
