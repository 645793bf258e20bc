"""Builds the handlers of unary methods, which add timeouts, error statuses, metrics and logging."""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from server.frontends.grpc import errors
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.executor.call_executor import CallExecutor
from server.frontends.grpc.observability import CallObserver
from tpuserve.errors import (
    Cancelled,
    Code,
    DeadlineExceeded,
    InvalidInput,
    RequestTooLarge,
    TpuserveError,
)

Message: TypeAlias = Any

UnaryFunction: TypeAlias = Callable[[bytes, CallContext], bytes]
"""A function that implements a unary method.

The function gets the serialised request and the state of the call, and returns the serialised
response. The function parses the request itself, so that this package, and not grpcio, writes the
error for invalid bytes.
"""

# A call with more time left than this counts as one without a deadline, because grpcio reports a
# deadline in the far future if the client has set none.
_NO_DEADLINE_SECONDS = 10 * 365 * 24 * 3600

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnaryMethod:
    """A gRPC method with one request message and one response message.

    Attributes:
      function: implements the method; takes the serialised request and the state of the call, and
        returns the serialised response.
      pool: the thread pool that runs the method; None for the threads of the server's
        `CallExecutor`.
      is_quick: whether the method neither waits nor computes for long, so that a call is answered
        even while all threads of the executor are busy.
    """

    function: UnaryFunction
    pool: futures.ThreadPoolExecutor | None = None
    is_quick: bool = False


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


def build_unary_handler(
    name: str,
    method: UnaryMethod,
    executor: CallExecutor,
    observer: CallObserver,
    on_done: Callable[[], object] = lambda: None,
) -> grpc.RpcMethodHandler:
    """Build grpcio's handler of a unary method.

    The handler declares the method to grpcio as one with a stream of requests, which has the same
    wire format. Only for such a method does grpcio create the ServicerContext before the request
    message has arrived. The executor needs the context to cancel a call whose message stalls.

    Args:
      name: the full name of the method, such as "/tensorflow.serving.PredictionService/Predict".
      method: the implementation.
      executor: runs the calls.
      observer: records the calls.
      on_done: a function to call at the end of each call, successful or not.
    """
    function = method.function

    def handle_call(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        call = CallContext()
        started_ns = time.perf_counter_ns()
        message, reply, status = None, b"", "OK"
        try:
            message = executor.receive_first(messages, context)
            call.timeout_ms = _remaining_ms(context)
            if message is None:
                raise InvalidInput("the call has no request message. Send exactly one.")
            reply = function(message, call)
            return reply
        except TpuserveError as error:
            status = error.code.name
            errors.abort_with_error(context, error)
        except MemoryError:
            logger.exception("a call needs more memory than there is")
            status = RequestTooLarge.code.name
            errors.abort_with_error(
                context, RequestTooLarge("out of memory. Send a smaller request.")
            )
        except grpc.RpcError:
            # Pass on the exception, which grpcio has raised because the client has gone, and which
            # grpcio expects the handler to raise.
            status = Code.CANCELLED.name
            raise
        except Exception:
            logger.exception("a call has failed")
            status = Code.INTERNAL.name
            context.abort(grpc.StatusCode.INTERNAL, "Internal error, see the server's log")
        finally:
            on_done()
            observer.record(
                name, call, status, started_ns, context, len(message or b""), len(reply)
            )
        raise AssertionError("abort never returns")

    executor.register(handle_call, pool=method.pool, is_quick=method.is_quick)
    return grpc.stream_unary_rpc_method_handler(handle_call)


def build_rejecting_handler(
    name: str, error: TpuserveError, observer: CallObserver, pool: futures.ThreadPoolExecutor
) -> grpc.RpcMethodHandler:
    """Build a handler that ends a call with an error before any message is read.

    Args:
      name: the full name of the method.
      error: the error whose code and message the client receives.
      observer: records the rejected call.
      pool: the thread pool that runs the handler.
    """

    def reject_call(messages: Iterator[bytes], context: grpc.ServicerContext) -> NoReturn:
        observer.record(name, CallContext(), error.code.name, time.perf_counter_ns(), context)
        errors.abort_with_error(context, error)

    # Run the handler in a separate pool, because the executor may wait for the first message of the
    # call before it runs the handler.
    reject_call.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return grpc.stream_unary_rpc_method_handler(reject_call)


def _remaining_ms(context: grpc.ServicerContext) -> float | None:
    """Return the milliseconds until the deadline of a call; None for no deadline.

    Raises:
      DeadlineExceeded, Cancelled: the client no longer waits for the response.
    """
    remaining_seconds = context.time_remaining()
    if remaining_seconds is None or remaining_seconds > _NO_DEADLINE_SECONDS:
        remaining_seconds = None
    elif remaining_seconds <= 0:
        raise DeadlineExceeded("Deadline Exceeded")
    if not context.is_active():
        raise Cancelled("the client has cancelled the call")
    return None if remaining_seconds is None else remaining_seconds * 1000
