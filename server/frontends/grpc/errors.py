"""Converts errors to gRPC statuses. A status has a code and a message."""

from typing import NoReturn

import grpc

from tpuserve.errors import Code, TpuserveError

GRPC_STATUS: dict[Code, grpc.StatusCode] = {code: grpc.StatusCode[code.name] for code in Code}
"""The gRPC status code of each canonical code."""

# The largest size of an error message in bytes. TensorFlow Serving truncates messages to this size,
# because gRPC sends the message of a status in an HTTP/2 header. Source:
# tensorflow_serving/model_servers/grpc_status_util.cc.
_MAX_MESSAGE_BYTES = 1024


def abort_with_error(context: grpc.ServicerContext, error: TpuserveError) -> NoReturn:
    """End a call with the code and the message of an error.

    The function never returns: it raises the exception with which grpcio ends an aborted call.
    """
    context.abort(GRPC_STATUS[error.code], truncate_message(str(error)))
    raise AssertionError("abort never returns")


def truncate_message(text: str) -> str:
    """Truncate an error message to 1024 bytes of UTF-8, as TensorFlow Serving does.

    A multi-byte character that crosses the limit is omitted as a whole. "...TRUNCATED" is appended
    to a truncated message.
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= _MAX_MESSAGE_BYTES:
        return encoded.decode("utf-8")
    return encoded[:_MAX_MESSAGE_BYTES].decode("utf-8", "ignore") + "...TRUNCATED"


def to_utf8(text: str) -> str:
    """Replace each lone surrogate in a text by "?".

    A string in a protobuf message must be valid UTF-8.
    """
    return text.encode("utf-8", "replace").decode("utf-8")
