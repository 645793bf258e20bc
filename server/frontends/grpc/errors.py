"""Errors as gRPC: a status code and a text."""

from typing import NoReturn

import grpc

from tpuserve.errors import Code, TpuserveError

GRPC_STATUS: dict[Code, grpc.StatusCode] = {code: grpc.StatusCode[code.name] for code in Code}

_MAX_BYTES = 1024


def abort(context: grpc.ServicerContext, error: TpuserveError) -> NoReturn:
    """Ends a call with the status of an error."""
    context.abort(GRPC_STATUS[error.code], truncate_message(str(error)))
    raise AssertionError("abort never returns")


def truncate_message(text: str) -> str:
    """A text as TensorFlow Serving cuts it: it travels in a header, which has a limit.

    The limit counts bytes of UTF-8, as there; a character is not cut in two.
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= _MAX_BYTES:
        return encoded.decode("utf-8")
    return encoded[:_MAX_BYTES].decode("utf-8", "ignore") + "...TRUNCATED"


def to_utf8(text: str) -> str:
    """A text as a proto can hold it: the name of a file need not be in UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
