"""The interface of a parsed request, and its implementation for bodies parsed in this process."""

from typing import Protocol

from server.codec import examples, requests
from server.codec.json_parser import Json
from server.codec.requests import Arrays
from server.request import RequestContext
from tpuserve.saved_model.signature import Signature


class ParsedRequest(Protocol):
    """A request whose JSON body is parsed, but whose tensors are not decoded yet."""

    signature_name: str
    is_row_format: bool
    is_closed: bool

    def decode_inputs(self, signature: Signature) -> Arrays:
        """Decode the inputs of a predict request.

        The result and the errors are those of `server.codec.requests.decode_inputs`.
        Afterwards, the request may be closed.
        """

    def decode_examples(self) -> list[bytes]:
        """Decode the examples of a classify or regress request.

        The result and the errors are those of `server.codec.examples.decode_examples`.
        Afterwards, the request may be closed.
        """

    def close(self) -> None:
        """Free the parsed values. Further calls have no effect."""


class LocalRequest:
    """A `ParsedRequest` whose body was parsed in this process."""

    __slots__ = (
        "_context",
        "_document",
        "_estimated_bytes",
        "is_closed",
        "is_row_format",
        "signature_name",
    )

    def __init__(self, document: Json) -> None:
        self.signature_name = requests.get_signature_name(document)
        self.is_row_format = requests.is_row_format(document)
        self.is_closed = False
        self._document = document
        self._context = RequestContext()
        self._estimated_bytes = 0

    def hold_memory(self, context: RequestContext, estimated_bytes: int) -> None:
        """Let the request update a memory reservation when its tensors are decoded.

        The request then reserves memory for the tensors, frees the parsed values, and gives back
        the memory that was reserved for them.

        Args:
          estimated_bytes: The number of bytes in the reservation that are for the parsed values.
        """
        self._context = context
        self._estimated_bytes = estimated_bytes

    def decode_inputs(self, signature: Signature) -> Arrays:
        """Decode the inputs of a predict request, as in `ParsedRequest.decode_inputs`."""
        arrays = requests.decode_inputs(self._document, signature)
        if self._context.memory is not None:
            self._context.reserve(requests.count_bytes(arrays))
            self.close()
        return arrays

    def decode_examples(self) -> list[bytes]:
        """Decode the examples of a request, as in `ParsedRequest.decode_examples`."""
        shared, separate = examples.decode_separately(self._document)
        merged = merge_context(shared, separate, self._context)
        if self._context.memory is not None:
            self.close()
        return merged

    def close(self) -> None:
        """Free the parsed values, and give their memory back to the budget."""
        self._document = None
        self.is_closed = True
        if self._context.memory is not None:
            self._context.memory.shrink(self._estimated_bytes)
            self._estimated_bytes = 0


def merge_context(shared: bytes, separate: list[bytes], context: RequestContext) -> list[bytes]:
    """Merge the context of a request with each of its examples, and reserve memory for the result.

    Args:
      shared: The features that all examples share, as a serialised tf.train.Example.
      separate: The examples, as serialised tf.train.Example messages.
      context: The context of the request.
    """
    context.reserve(examples.count_bytes(shared, separate))
    return examples.merge_with_context(shared, separate)
