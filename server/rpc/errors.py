"""Errors as gRPC: a status code and a text."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tpuserve.errors import Code, TpuserveError

GRPC_STATUS: dict[Code, grpc.StatusCode] = {code: grpc.StatusCode[code.name] for code in Code}

_MAX_CHARACTERS = 1024

logger = logging.getLogger(__name__)


@contextmanager
def as_status(context: grpc.ServicerContext) -> Iterator[None]:
    """Ends the call with the status of whatever is raised in the block."""
    try:
        yield
    except TpuserveError as error:
        context.abort(GRPC_STATUS[error.code], cut(str(error)))
    except Exception:
        logger.exception("a call has failed")
        context.abort(grpc.StatusCode.INTERNAL, "Internal error, see the server's log")


def cut(text: str) -> str:
    """A text as TensorFlow Serving cuts it: it travels in a header, which has a limit."""
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "...TRUNCATED"
