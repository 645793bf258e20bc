"""Parses request messages within limits of memory and time; parses one large message at a time."""

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from server.frontends.grpc.call_context import CallContext
from server.tensors import parsing_cost
from server.tensors.large_predict_request import LargePredictRequest, read_predict_request
from tpuserve.errors import InvalidInput

Message: TypeAlias = Any

LARGE_BYTES = 1 << 20
"""The size of a message, in bytes, above which it is large: its parsing may take milliseconds."""

# A thread holds this lock while it parses a large message, so that only one such message is parsed
# at a time. Protobuf holds Python's global interpreter lock (GIL) while it parses.
_LARGE_MESSAGE_TURN = threading.Lock()


def parsing_turn(num_bytes: int) -> AbstractContextManager[Any]:
    """Return a context manager that lets only one thread at a time parse a large message.

    Args:
      num_bytes: the size of the message in bytes. A message of at most `LARGE_BYTES` does not wait
        for others.
    """
    return _LARGE_MESSAGE_TURN if num_bytes > LARGE_BYTES else nullcontext()


def parse_within_limits(
    message_type: type[Message],
    raw: bytes | memoryview,
    fields: parsing_cost.Fields,
    call: CallContext,
) -> Message:
    """Parse a serialised message, after reserving the memory that the parsed message takes."""
    with parsing_turn(len(raw)):
        call.request.check()
        call.request.reserve(parsing_cost.bound_parsed_bytes(raw, fields))
        return parse_message(message_type, raw)


def parse_message(message_type: type[Message], raw: bytes | memoryview) -> Message:
    """Parse a serialised message."""
    try:
        return message_type.FromString(raw)
    except (DecodeError, RecursionError) as error:
        raise _invalid_request(message_type) from error


def read_large_predict_request(raw: bytes | memoryview, call: CallContext) -> LargePredictRequest:
    """Read a large PredictRequest without parsing the values of its tensors."""
    with parsing_turn(len(raw)):
        call.request.check()
        try:
            return read_predict_request(raw, call.request.reserve)
        except (DecodeError, RecursionError) as error:
            raise _invalid_request(PredictRequest) from error


def _invalid_request(message_type: type[Message]) -> InvalidInput:
    name = message_type.DESCRIPTOR.full_name
    return InvalidInput(f"the request cannot be parsed as a {name}")
