"""Reserves memory in the memory budget for the outputs of a model and for the response.

The memory budget bounds the memory of all requests together.
"""

from collections.abc import Callable, Mapping

from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.codec.array_to_json import JsonText
from server.codec.requests import count_bytes
from server.servables.servable import Array

# If all outputs of a response together have fewer bytes than this, they reserve no memory, because
# a reservation would slow small responses down.
_UNCOUNTED_BYTES = 64 << 10
# The smallest response body, in bytes, whose memory is reserved until the body is sent.
_MIN_COUNTED_BYTES = 64 << 10
# The number of bytes to reserve for a number as JSON text with its separator, such as
# "-2.2250738585072014e-308, ".
_JSON_BYTES_PER_NUMBER = 26
# The largest size of an integer in a protobuf message, in bytes; negative integers have this size.
_VARINT_BYTES = 10


def reserve_for_message(outputs: Mapping[str, Array], reserve: Callable[[int], object]) -> None:
    """Reserve memory for the outputs of a model and for the protobuf response that contains them.

    The response counts twice: first as serialised chunks, then as the message that is joined from
    these. Small outputs reserve nothing.

    Args:
      outputs: alias in the signature → array of any shape and dtype.
      reserve: reserves a number of bytes; raises an error if the memory budget does not have them.
    """
    outputs_bytes = count_bytes(outputs)
    if outputs_bytes < _UNCOUNTED_BYTES:
        return
    parts = sum(
        array.size * _VARINT_BYTES if array.dtype.kind in "iu" else count_bytes({"": array})
        for array in outputs.values()
    )
    reserve(outputs_bytes + 2 * parts)


def reserve_for_json(outputs: Mapping[str, Array], reserve: Callable[[int], object]) -> None:
    """Reserve memory for the outputs of a model and for their JSON text.

    Small outputs reserve nothing.

    Args:
      outputs: alias in the signature → array of any shape and dtype.
      reserve: reserves a number of bytes; raises an error if the memory budget does not have them.
    """
    outputs_bytes = count_bytes(outputs)
    if outputs_bytes < _UNCOUNTED_BYTES:
        return
    text = sum(
        # Reserve six bytes for each byte of a string: JSON escapes a control character with six
        # bytes, such as "\u0001".
        6 * count_bytes({"": array})
        if array.dtype == object
        else array.size * _JSON_BYTES_PER_NUMBER
        for array in outputs.values()
    )
    reserve(outputs_bytes + text)


def reserve_for_body(body: JsonText, budget: MemoryBudget) -> MemoryReservation | None:
    """Reserve memory for a response's JSON body until the body is sent.

    Returns:
      The reservation, which the caller releases when the body is sent; None for a small body, which
      reserves nothing.
    """
    return budget.reserve(len(body)) if len(body) >= _MIN_COUNTED_BYTES else None
