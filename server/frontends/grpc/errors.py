"""Converts errors to gRPC statuses: a code and a message."""

from typing import NoReturn

import grpc

from tpuserve.errors import Code, TpuserveError

GRPC_STATUS: dict[Code, grpc.StatusCode] = {code: grpc.StatusCode[code.name] for code in Code}
"""The gRPC status code of each canonical code."""

# TensorFlow Serving truncates messages to this length, because a message travels in a header.
# Source: tensorflow_serving/model_servers/grpc_status_util.cc.
_MAX_MESSAGE_BYTES = 1024


def abort_with_error(context: grpc.ServicerContext, error: TpuserveError) -> NoReturn:
    """End a call with an error's code and message: raise grpcio's exception for aborted calls."""
    context.abort(GRPC_STATUS[error.code], truncate_message(str(error)))
    raise AssertionError("abort never returns")


def truncate_message(text: str) -> str:
    """Truncate a message as TensorFlow Serving does: to 1024 bytes of UTF-8.

    A character that would cross the limit is left out. A truncated message ends in "...TRUNCATED".
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= _MAX_MESSAGE_BYTES:
        return encoded.decode("utf-8")
    return encoded[:_MAX_MESSAGE_BYTES].decode("utf-8", "ignore") + "...TRUNCATED"


def to_utf8(text: str) -> str:
    """Replace lone surrogates by "?", because a string in a proto must be valid UTF-8.

    An error text may quote a file name. Python reads bytes of file names that are not UTF-8 as lone
    surrogates.
    """
    return text.encode("utf-8", "replace").decode("utf-8")
