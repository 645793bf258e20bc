"""The interface of a parsed request, and the requests that this process has parsed."""

from typing import Protocol

from server.admission.memory_budget import MemoryReservation
from server.codec import examples, requests
from server.codec.json_parser import Json
from server.codec.requests import Arrays
from tpuserve.saved_model.signature import Signature


class ParsedRequest(Protocol):
    """A request body that is valid JSON, and whose tensors are not decoded yet.

    Attributes:
      signature_name: The signature that the request names; "" if it names none.
      is_row_format: Whether a predict request is in row format ("instances").
      is_closed: Whether the parsed values are freed. Then nothing can be decoded any more.
    """

    signature_name: str
    is_row_format: bool
    is_closed: bool

    def decode_inputs(self, signature: Signature) -> Arrays:
        """Decode the inputs of a predict request, and close the request.

        See `requests.decode_inputs`.
        """

    def decode_examples(self) -> list[bytes]:
        """Decode the examples of a classify or regress request, and close the request.

        See `examples.decode_examples`.
        """

    def close(self) -> None:
        """Free the parsed values. Further calls have no effect."""


class LocalRequest:
    """A request that was parsed in this process; see `ParsedRequest`."""

    __slots__ = (
        "_document",
        "_estimated_bytes",
        "_reservation",
        "is_closed",
        "is_row_format",
        "signature_name",
    )

    def __init__(self, document: Json) -> None:
        """Wrap a parsed body.

        If `hold_memory` is called, the request closes itself when its tensors are decoded.

        Raises:
          InvalidJson: The document is not an object, or its signature name is not a string.
        """
        self.signature_name = requests.get_signature_name(document)
        self.is_row_format = requests.is_row_format(document)
        self.is_closed = False
        self._document = document
        self._reservation: MemoryReservation | None = None
        self._estimated_bytes = 0

    def hold_memory(self, reservation: MemoryReservation | None, estimated_bytes: int) -> None:
        """Account for the request's memory in a reservation.

        When the tensors are decoded, memory for them is reserved, the parsed values are freed, and
        their part of the reservation is given back.

        Args:
          reservation: The memory of the request. None for no limit.
          estimated_bytes: The part of the reservation that is for the parsed values.
        """
        self._reservation = reservation
        self._estimated_bytes = estimated_bytes

    def decode_inputs(self, signature: Signature) -> Arrays:
        """Decode the inputs; see `ParsedRequest.decode_inputs`."""
        arrays = requests.decode_inputs(self._document, signature)
        if self._reservation is not None:
            self._reservation.grow(requests.count_bytes(arrays))
            self.close()
        return arrays

    def decode_examples(self) -> list[bytes]:
        """Decode the examples; see `ParsedRequest.decode_examples`."""
        context, separate = examples.decode_separately(self._document)
        merged = merge_context(context, separate, self._reservation)
        if self._reservation is not None:
            self.close()
        return merged

    def close(self) -> None:
        """Free the parsed values, and give their memory back to the budget."""
        self._document = None
        self.is_closed = True
        if self._reservation is not None:
            self._reservation.shrink(self._estimated_bytes)
            self._estimated_bytes = 0


def merge_context(
    context: bytes, separate: list[bytes], reservation: MemoryReservation | None
) -> list[bytes]:
    """Merge the context of a request with each of its examples, within the memory budget.

    Args:
      context: A serialised tf.train.Example.
      separate: A serialised tf.train.Example for each example.
      reservation: The memory of the request; None without a limit.
    """
    if reservation is not None:
        reservation.grow(examples.count_bytes(context, separate))
    return examples.merge_with_context(context, separate)
