"""Builds the handlers of unary methods, which add timeouts, error statuses, metrics and logging."""

import logging
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc

from server.admission import cancellation as cancellations
from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.frontends.grpc import compression, errors
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.executor.call_admission import AdmittedCall, CallAdmission
from server.frontends.grpc.executor.call_executor import CallExecutor, ReadModelName
from server.frontends.grpc.executor.suspension import CallSuspended
from server.frontends.grpc.observability import CallObserver
from server.servables.pending import Pending
from tpuserve.errors import (
    Cancelled,
    Code,
    DeadlineExceeded,
    InvalidInput,
    RequestTooLarge,
    TpuserveError,
)

Message: TypeAlias = Any

UnaryFunction: TypeAlias = Callable[[bytes | memoryview, CallContext], bytes | Pending[bytes]]
"""A function that implements a unary method.

The function gets the serialised request and the state of the call, and returns the serialised
response, or its Pending if the request waits for a batch. The function parses the request itself,
so that this package, and not grpcio, writes the error for invalid bytes.
"""

# A call with more time left than this counts as one without a deadline, because grpcio reports a
# deadline in the far future if the client has set none.
_NO_DEADLINE_SECONDS = 10 * 365 * 24 * 3600
_INTERNAL_ERROR = "Internal error, see the server's log"

logger = logging.getLogger(__name__)


def read_no_model_name(raw: bytes) -> str:
    """Return the model's name of a call that runs no model: ""."""
    return ""


@dataclass(frozen=True)
class UnaryMethod:
    """A gRPC method with one request message and one response message.

    Attributes:
      function: implements the method; takes the serialised request and the state of the call, and
        returns the serialised response.
      pool: the thread pool that runs the method; None for the threads of the server's
        `CallExecutor`.
      is_quick: whether the method neither waits nor computes for long. Calls of quick methods are
        answered even while all threads of the executor are busy.
      read_model_name: reads the model's name from the serialised request. The call waits in the
        queue of this model. `read_no_model_name` for methods that run no model.
    """

    function: UnaryFunction
    pool: futures.ThreadPoolExecutor | None = None
    is_quick: bool = False
    read_model_name: ReadModelName = read_no_model_name

    @property
    def runs_model(self) -> bool:
        """Whether the calls of the method run a model."""
        return self.read_model_name is not read_no_model_name


@dataclass(slots=True)
class _UnaryCall:
    """The state of a call that its handler keeps while the call waits for a batch.

    Attributes:
      context: the `CallContext` of the call.
      num_bytes: the size of the request message.
      admitted: the admitted call; None if there is no message or no admission.
      memory: the memory of a call that is not admitted; None for other calls.
      pending: the serialised response; None for a call that does not wait.
    """

    context: CallContext
    num_bytes: int = 0
    admitted: AdmittedCall | None = None
    memory: MemoryReservation | None = None
    pending: Pending[bytes] | None = None


@dataclass(frozen=True)
class CallEnvironment:
    """The objects that the handlers of all unary methods of a server share.

    Attributes:
      executor: runs the calls.
      observer: records the calls.
      memory_budget: bounds the memory of all requests together.
      max_message_bytes: the largest size of a request message after decompression.
      default_timeout_ms: the milliseconds in which a call without a deadline must be answered; None
        for no limit.
    """

    executor: CallExecutor
    observer: CallObserver
    memory_budget: MemoryBudget
    max_message_bytes: int
    default_timeout_ms: float | None


def build_unary_handler(
    name: str,
    method: UnaryMethod,
    environment: CallEnvironment,
    admission: CallAdmission | None = None,
) -> grpc.RpcMethodHandler:
    """Build grpcio's handler of a unary method.

    The handler declares the method to grpcio as one with a stream of requests, which has the same
    wire format. Only for such a method does grpcio create the ServicerContext before the request
    message has arrived. The executor needs the context to cancel a call whose message stalls.

    Args:
      name: the full name of the method, such as "/tensorflow.serving.PredictionService/Predict".
      method: the implementation.
      environment: the objects that all handlers share.
      admission: admits the calls; None for calls that are always admitted.
    """
    handler = _UnaryHandler(name, method, environment, admission)
    environment.executor.register(
        handler,
        pool=method.pool,
        is_quick=method.is_quick,
        admission=admission,
        read_model_name=method.read_model_name,
    )
    return grpc.stream_unary_rpc_method_handler(handler)


class _UnaryHandler:
    """Handles the calls of a unary method. grpcio calls it like a function."""

    def __init__(
        self,
        name: str,
        method: UnaryMethod,
        environment: CallEnvironment,
        admission: CallAdmission | None,
    ) -> None:
        """Create a handler; see `build_unary_handler`."""
        self._name = name
        self._method = method
        self._environment = environment
        self._executor = environment.executor
        self._admission = admission
        self._is_queued = method.pool is None and not method.is_quick

    def __call__(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Answer a call, or end it with the status of its error."""
        suspended: _UnaryCall | None = self._executor.resume(messages)
        running = suspended or _UnaryCall(CallContext(self._executor.received_ns(messages)))
        call, reply, status, is_over = running.context, b"", "OK", True
        try:
            if running.pending is not None:
                reply = running.pending.finish()
            else:
                reply = self._answer(messages, context, running)
            return reply
        except CallSuspended:
            is_over = False
            raise
        except TpuserveError as error:
            status, call.error = error.code.name, str(error)
            errors.abort_with_error(context, error)
        except MemoryError:
            logger.exception("a call needs more memory than there is")
            refusal = RequestTooLarge("out of memory. Send a smaller request.")
            status, call.error = refusal.code.name, str(refusal)
            errors.abort_with_error(context, refusal)
        except grpc.RpcError:
            # Pass on the exception, which grpcio has raised because the client has gone, and which
            # grpcio expects the handler to raise.
            status = Code.CANCELLED.name
            raise
        except Exception:
            logger.exception("a call has failed")
            status, call.error = Code.INTERNAL.name, _INTERNAL_ERROR
            context.abort(grpc.StatusCode.INTERNAL, _INTERNAL_ERROR)
        finally:
            if is_over:
                if running.admitted is not None:
                    running.admitted.release()
                if running.memory is not None:
                    running.memory.release()
                self._environment.observer.record(
                    *(self._name, call, status, context, self._method.runs_model),
                    *(running.num_bytes, len(reply)),
                )
        raise AssertionError("abort never returns")

    def _answer(
        self, messages: Iterator[bytes], context: grpc.ServicerContext, running: _UnaryCall
    ) -> bytes:
        """Receive the message of a call, and return the serialised response.

        Raises:
          CallSuspended: the call waits for a batch.
        """
        executor, environment, call = self._executor, self._environment, running.context
        if self._admission is None:
            message = executor.receive_first(messages, context)
        else:
            message, running.admitted = executor.receive_admitted(
                messages, context, self._admission
            )
        if message is not None and self._is_queued:
            call.timeline.queued_ns = executor.received_ns(messages)
            executor.await_turn(messages, context, partial(self._method.read_model_name, message))
        call.timeline.begin_decoding()
        call.timeout_ms = _remaining_ms(context, environment.default_timeout_ms)
        if message is None:
            raise InvalidInput("the call has no request message. Send exactly one.")
        running.num_bytes = len(message)
        if not context.add_callback(call.cancellation.cancel):
            raise Cancelled(cancellations.MESSAGE)
        if running.admitted is None:
            call.memory = running.memory = environment.memory_budget.reserve()
        else:
            call.memory = running.admitted.memory
        content = compression.decompress(
            message, environment.max_message_bytes, call.memory, call.cancellation
        )
        result = self._method.function(content, call)
        if isinstance(result, Pending):
            running.pending = result
            executor.suspend(messages, running, result)
            result = result.finish()
        return result


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
        call = CallContext()
        call.error = str(error)
        observer.record(name, call, error.code.name, context)
        errors.abort_with_error(context, error)

    # Run the handler in a separate pool, because the executor may wait for the first message of the
    # call before it runs the handler.
    reject_call.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return grpc.stream_unary_rpc_method_handler(reject_call)


def _remaining_ms(context: grpc.ServicerContext, default_ms: float | None) -> float | None:
    """Return the milliseconds in which a call must be answered; None for no limit.

    Args:
      context: the context of the call.
      default_ms: the time limit of a call without a deadline.

    Raises:
      DeadlineExceeded, Cancelled: the client no longer waits for the response.
    """
    remaining_seconds = context.time_remaining()
    if remaining_seconds is None or remaining_seconds > _NO_DEADLINE_SECONDS:
        return default_ms
    if remaining_seconds <= 0:
        raise DeadlineExceeded("Deadline Exceeded")
    return remaining_seconds * 1000
