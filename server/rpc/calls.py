"""One call: its message received, its time counted, its errors told."""

import logging
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from server.rpc import errors
from server.rpc.threads import Threads
from tpuserve.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidInput,
    RequestTooLarge,
    TpuserveError,
)

Message: TypeAlias = Any

Answer: TypeAlias = Callable[[bytes, float | None], bytes]
"""A request's bytes, and the milliseconds it may take or None for any → the reply's bytes."""

Done: TypeAlias = Callable[[], object]

# A call without a deadline has one in the far future.
_NO_DEADLINE_SECONDS = 10 * 365 * 24 * 3600

logger = logging.getLogger(__name__)


def parse(message_type: type[Message], raw: bytes) -> Message:
    """A message out of its bytes.

    Raises:
      InvalidInput: they are no such message.
    """
    try:
        return message_type.FromString(raw)
    except (DecodeError, RecursionError) as error:
        name = message_type.DESCRIPTOR.full_name
        raise InvalidInput(f"the request cannot be parsed as a {name}") from error


def handler(
    answer: Answer,
    threads: Threads,
    done: Done = lambda: None,
    pool: futures.ThreadPoolExecutor | None = None,
) -> grpc.RpcMethodHandler:
    """What gRPC calls for a method with one request and one reply.

    To gRPC it is a method with a stream of requests, which is the same on the wire: only so is
    the context there while the message is still on its way, and with it a way to give up a sender
    that stalls.

    Args:
      answer: gets the message as bytes, since it is for us to say what is wrong with them.
      done: called at the end of each call, whatever became of it.
      pool: threads of its own for a method that takes long; None to run with the rest.
    """

    def call(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        try:
            message = threads.receive(messages, context)
            return _answer(answer, message, context)
        finally:
            done()

    return _unary(call, pool)


def refusal(
    error: TpuserveError, pool: futures.ThreadPoolExecutor | None = None
) -> grpc.RpcMethodHandler:
    """What ends a call with an error, before any of its message is read."""

    def refuse(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        errors.abort(context, error)

    return _unary(refuse, pool)


def _unary(
    call: Callable[[Iterator[bytes], grpc.ServicerContext], bytes],
    pool: futures.ThreadPoolExecutor | None,
) -> grpc.RpcMethodHandler:
    if pool is not None:
        call.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return grpc.stream_unary_rpc_method_handler(call)


def _answer(answer: Answer, message: bytes | None, context: grpc.ServicerContext) -> bytes:
    try:
        if message is None:
            raise InvalidInput("a call has one request message, this one has none")
        return answer(message, _timeout_ms(context))
    except TpuserveError as error:
        errors.abort(context, error)
    except MemoryError:
        logger.exception("a call needs more memory than there is")
        errors.abort(context, RequestTooLarge("out of memory. Send a smaller request."))
    except Exception:
        logger.exception("a call has failed")
        context.abort(grpc.StatusCode.INTERNAL, "Internal error, see the server's log")
    raise AssertionError("abort never returns")


def _timeout_ms(context: grpc.ServicerContext) -> float | None:
    """The time that is left for a call.

    Raises:
      DeadlineExceeded, Cancelled: nobody waits for the answer any more.
    """
    remaining = context.time_remaining()
    if remaining is None or remaining > _NO_DEADLINE_SECONDS:
        remaining = None
    elif remaining <= 0:
        raise DeadlineExceeded("Deadline Exceeded")
    if not context.is_active():
        raise Cancelled("the client has cancelled the call")
    return None if remaining is None else remaining * 1000
