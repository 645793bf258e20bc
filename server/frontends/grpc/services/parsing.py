"""Parses request messages, large ones one after the other."""

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from server.frontends.grpc.call_context import CallContext
from server.tensors import parsing_cost
from tpuserve.errors import InvalidInput

Message: TypeAlias = Any

_LARGE_BYTES = 1 << 20
# Lets one large message be parsed at a time. Protobuf holds Python's global interpreter lock (GIL)
# while it parses. If several threads wanted to parse large messages, the thread that answers health
# checks would have to wait for all of them.
_LARGE_MESSAGE_TURN = threading.Lock()


def parsing_turn(num_bytes: int) -> AbstractContextManager[Any]:
    """Return a context manager that waits until no other thread parses a large message.

    Args:
      num_bytes: the size of the message; a small one does not wait.
    """
    return _LARGE_MESSAGE_TURN if num_bytes > _LARGE_BYTES else nullcontext()


def parse_within_limits(
    message_type: type[Message], raw: bytes, fields: parsing_cost.Fields, call: CallContext
) -> Message:
    """Parse a serialised message after its memory has been reserved.

    Args:
      message_type: the class of the message.
      raw: the serialised message.
      fields: the fields of the message that may be long.
      call: the call, whose memory grows.

    Raises:
      InvalidInput: the bytes are not a message of the type.
      RequestTooLarge, MemoryBudgetExceeded: parsing would need too much time or memory.
    """
    with parsing_turn(len(raw)):
        call.cancellation.raise_if_cancelled()
        call.memory.grow(parsing_cost.bound_parsed_bytes(raw, fields))
        return parse_message(message_type, raw)


def parse_message(message_type: type[Message], raw: bytes) -> Message:
    """Parse a serialised message.

    Raises:
      InvalidInput: the bytes are not a message of the type.
    """
    try:
        return message_type.FromString(raw)
    except (DecodeError, RecursionError) as error:
        name = message_type.DESCRIPTOR.full_name
        raise InvalidInput(f"the request cannot be parsed as a {name}") from error
