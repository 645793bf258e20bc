"""Reserves memory in the memory budget for the outputs of a model and for the response.

The memory budget bounds the memory of all requests together.
"""

from collections.abc import Callable, Mapping

from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.codec.array_to_json import JsonText
from server.codec.requests import count_bytes
from server.dataplane import Classification, Regression
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
# The numbers of bytes to reserve for the encoding of a classification as JSON: for each pair of a
# label and a score, which becomes several objects in Python, and for each byte of a label.
_JSON_BYTES_PER_PAIR, _JSON_BYTES_PER_LABEL_BYTE = 190, 4
# The numbers of bytes to reserve for the encoding of a classification or a regression as protobuf:
# for each element, which becomes a message, and for each byte of a label.
_BYTES_PER_MESSAGE, _MESSAGE_BYTES_PER_LABEL_BYTE = 128, 6


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


def reserve_for_result_as_json(
    result: Classification | Regression, reserve: Callable[[int], object]
) -> None:
    """Reserve memory for a classification or a regression and for its JSON text.

    A small result reserves nothing.

    Args:
      reserve: reserves a number of bytes; raises an error if the memory budget does not have them.
    """
    if isinstance(result, Regression):
        reserve_for_json({"values": result.values}, reserve)
    else:
        _reserve_for_elements(result, _JSON_BYTES_PER_PAIR, _JSON_BYTES_PER_LABEL_BYTE, reserve)


def reserve_for_result_as_message(
    result: Classification | Regression, reserve: Callable[[int], object]
) -> None:
    """Reserve memory for a classification or a regression and for its protobuf message.

    The arguments are those of `reserve_for_result_as_json`. A small result reserves nothing.
    """
    _reserve_for_elements(result, _BYTES_PER_MESSAGE, _MESSAGE_BYTES_PER_LABEL_BYTE, reserve)


def _reserve_for_elements(
    result: Classification | Regression,
    element_bytes: int,
    label_factor: int,
    reserve: Callable[[int], object],
) -> None:
    labels, numbers = (
        (None, result.values) if isinstance(result, Regression) else (result.classes, result.scores)
    )
    arrays = [array for array in (labels, numbers) if array is not None]
    num_elements = max((array.size for array in arrays), default=0)
    label_bytes = 0 if labels is None else sum(map(len, labels.ravel().tolist()))
    num_bytes = num_elements * element_bytes + label_bytes * label_factor
    if num_bytes >= _UNCOUNTED_BYTES:
        reserve(sum(count_bytes({"": array}) for array in arrays) + num_bytes)


def reserve_for_body(body: JsonText, budget: MemoryBudget) -> MemoryReservation | None:
    """Reserve memory for a response's JSON body until the body is sent.

    Returns:
      The reservation, which the caller releases when the body is sent; None for a small body, which
      reserves nothing.
    """
    return budget.reserve(len(body)) if len(body) >= _MIN_COUNTED_BYTES else None
