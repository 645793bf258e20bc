"""One call: its message received, its time counted, its errors told, its end noted down."""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from server.frontends.grpc import errors
from server.frontends.grpc.executor.call_executor import CallExecutor
from server.frontends.grpc.observability import CallObserver
from server.frontends.grpc.services.call_context import Answer, CallContext
from tpuserve.errors import (
    Cancelled,
    Code,
    DeadlineExceeded,
    InvalidInput,
    RequestTooLarge,
    TpuserveError,
)

Message: TypeAlias = Any

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
    method: str,
    answer: Answer,
    threads: CallExecutor,
    observer: CallObserver,
    done: Done = lambda: None,
    *,
    pool: futures.ThreadPoolExecutor | None = None,
    is_quick: bool = False,
) -> grpc.RpcMethodHandler:
    """What gRPC calls for a method with one request and one reply.

    To gRPC it is a method with a stream of requests, which is the same on the wire: only so is
    the context there while the message is still on its way, and with it a way to give up a sender
    that stalls.

    Args:
      method: its full name.
      answer: gets the message as bytes, since it is for us to say what is wrong with them.
      done: called at the end of each call, whatever became of it.
      pool, is_quick: as of `CallExecutor.register`.
    """

    def call(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        request = CallContext()
        started = time.perf_counter_ns()
        message, reply, status = None, b"", "OK"
        try:
            message = threads.receive_first(messages, context)
            request.timeout_ms = _timeout_ms(context)
            if message is None:
                raise InvalidInput("a call has one request message, this one has none")
            reply = answer(message, request)
            return reply
        except TpuserveError as error:
            status = error.code.name
            errors.abort(context, error)
        except MemoryError:
            logger.exception("a call needs more memory than there is")
            status = RequestTooLarge.code.name
            errors.abort(context, RequestTooLarge("out of memory. Send a smaller request."))
        except grpc.RpcError:
            # gRPC's way to say that the client has gone, and for gRPC to hear.
            status = Code.CANCELLED.name
            raise
        except Exception:
            logger.exception("a call has failed")
            status = Code.INTERNAL.name
            context.abort(grpc.StatusCode.INTERNAL, "Internal error, see the server's log")
        finally:
            done()
            observer.record(
                method, request, status, started, context, len(message or b""), len(reply)
            )
        raise AssertionError("abort never returns")

    threads.register(call, pool=pool, is_quick=is_quick)
    return grpc.stream_unary_rpc_method_handler(call)


def refusal(
    method: str, error: TpuserveError, observer: CallObserver, pool: futures.ThreadPoolExecutor
) -> grpc.RpcMethodHandler:
    """What ends a call with an error, before any of its message is read."""

    def refuse(messages: Iterator[bytes], context: grpc.ServicerContext) -> NoReturn:
        observer.record(method, CallContext(), error.code.name, time.perf_counter_ns(), context)
        errors.abort(context, error)

    # Not for `CallExecutor.register`, which may wait for the message first.
    refuse.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return grpc.stream_unary_rpc_method_handler(refuse)


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
