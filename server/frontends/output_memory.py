"""The memory that the outputs of a model and the response with them take."""

from collections.abc import Callable, Mapping

from server.codec.requests import count_bytes
from server.servables.servable import Array

# The bytes of responses that are not counted, so that small responses are quick.
_UNCOUNTED_BYTES = 64 << 10
# The bytes of a number as text with its separator, such as "-1.1754944e-38, ".
_JSON_BYTES_PER_NUMBER = 24
# The bytes of a negative integer in a message.
_VARINT_BYTES = 10


def reserve_for_message(outputs: Mapping[str, Array], reserve: Callable[[int], object]) -> None:
    """Reserve the memory of outputs, of their serialised parts, and of the message of the parts.

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
    """Reserve the memory of outputs and of their text; arguments as in `reserve_for_message`."""
    if sum(array.nbytes for array in outputs.values()) < _UNCOUNTED_BYTES:
        return
    text = sum(
        # Each byte of a string takes up to six bytes as text.
        6 * count_bytes({"": array})
        if array.dtype == object
        else array.size * _JSON_BYTES_PER_NUMBER
        for array in outputs.values()
    )
    reserve(count_bytes(outputs) + text)
