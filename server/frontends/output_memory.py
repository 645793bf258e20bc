"""Reserves memory for the outputs of a model and for the response that contains them."""

from collections.abc import Callable, Mapping

from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.codec.array_to_json import JsonText
from server.codec.requests import count_bytes
from server.servables.servable import Array

# Outputs of fewer bytes reserve no memory, because counting would slow small responses down.
_UNCOUNTED_BYTES = 64 << 10
# The smallest response body, in bytes, whose memory is reserved until the body is sent.
_MIN_COUNTED_BYTES = 64 << 10
# The memory reserved for a number as JSON text with its separator, such as "-1.1754944e-38, ", in
# bytes.
_JSON_BYTES_PER_NUMBER = 24
# The largest size of an integer in a protobuf message, in bytes; negative integers have this size.
_VARINT_BYTES = 10


def reserve_for_message(outputs: Mapping[str, Array], reserve: Callable[[int], object]) -> None:
    """Reserve memory for outputs, for their serialised chunks, and for the joined message.

    Args:
      outputs: alias → array.
      reserve: takes the number of bytes; raises an error if there is not so much memory.
    """
    if sum(array.nbytes for array in outputs.values()) < _UNCOUNTED_BYTES:
        return
    parts = sum(
        array.size * _VARINT_BYTES if array.dtype.kind in "iu" else count_bytes({"": array})
        for array in outputs.values()
    )
    reserve(count_bytes(outputs) + 2 * parts)


def reserve_for_json(outputs: Mapping[str, Array], reserve: Callable[[int], object]) -> None:
    """Reserve memory for outputs and their JSON text; arguments as in `reserve_for_message`."""
    if sum(array.nbytes for array in outputs.values()) < _UNCOUNTED_BYTES:
        return
    text = sum(
        # Each byte of a string takes up to six bytes as JSON, such as "\u0001".
        6 * count_bytes({"": array})
        if array.dtype == object
        else array.size * _JSON_BYTES_PER_NUMBER
        for array in outputs.values()
    )
    reserve(count_bytes(outputs) + text)


def reserve_for_body(body: JsonText, budget: MemoryBudget) -> MemoryReservation | None:
    """Reserve memory for a response's body until the body is sent; return None for a small body."""
    return budget.reserve(len(body)) if len(body) >= _MIN_COUNTED_BYTES else None
