"""Builds grpcio's handlers of unary methods.

The handlers parse no messages. They call the implementation of a method, and add admission control,
time limits, decompression, error statuses, metrics and the access log.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc

from server.admission.memory_budget import MemoryBudget
from server.admission.nonblocking import WouldBlock
from server.frontends.grpc import compression, errors
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.executor.call_admission import AdmittedCall, CallAdmission
from server.frontends.grpc.executor.call_executor import CallExecutor, ReadModelName
from server.frontends.grpc.executor.suspension import CallMoved, CallSuspended
from server.frontends.grpc.observability import CallObserver
from server.process.thread_pool import ThreadPool
from server.request import CLOCK
from server.servables.pending import Pending
from tpuserve.errors import (
    Code,
    InvalidInput,
    RequestTooLarge,
    TpuserveError,
)

Message: TypeAlias = Any

UnaryFunction: TypeAlias = Callable[[bytes | memoryview, CallContext], bytes | Pending[bytes]]
"""A function that implements a unary method."""

# A response of at least this number of bytes counts as in flight until it is sent. For a smaller
# one, gRPC's state of the call takes more memory than the response.
_MIN_COUNTED_BYTES = 16 << 10
_INTERNAL_ERROR = "Internal error, see the server's log"

logger = logging.getLogger(__name__)


def read_no_model_name(raw: bytes) -> str:
    """Return "", the model's name for a method that runs no model.

    This function is the value of `UnaryMethod.read_model_name` for such a method.
    """
    return ""


@dataclass(frozen=True)
class UnaryMethod:
    """A gRPC method with one request message and one response message.

    Attributes:
      function: implements the method; takes the serialised request and the state of the call, and
        returns the serialised response.
      pool: the thread pool that runs the calls; None for the threads of the server's
        `CallExecutor`.
      is_quick: whether the method neither waits nor computes for long. Calls of quick methods are
        answered even while all threads of the executor are busy.
      read_model_name: reads the model's name from the serialised request. The call waits in the
        queue of this model until it may run.
      reads_metadata_of: reads the model's name from the request of a method that needs the loaded
        model, but does not run it; None for all other methods.
    """

    function: UnaryFunction
    pool: ThreadPool | None = None
    is_quick: bool = False
    read_model_name: ReadModelName = read_no_model_name
    reads_metadata_of: ReadModelName | None = None

    @property
    def runs_model(self) -> bool:
        """Whether the calls of the method run a model."""
        return self.read_model_name is not read_no_model_name


@dataclass(slots=True)
class _UnaryCall:
    """The variables of a call that the handler needs again when it is called for the second time.

    Attributes:
      context: the state of the call, which metrics and logs read.
      num_bytes: the size of the request message in bytes, as received.
      admitted: the record that `CallAdmission.admit` has returned for the call; None if the call
        has no message or the method has no admission control.
      pending: the serialised response, which is complete later; None for a call that does not wait.
      content: the decompressed message of a call that must run in another thread; otherwise None.
    """

    context: CallContext
    num_bytes: int = 0
    admitted: AdmittedCall | None = None
    pending: Pending[bytes] | None = None
    content: bytes | memoryview | None = None

    def release(self) -> None:
        """Count the call as no longer in flight, and release its memory."""
        if self.admitted is not None:
            self.admitted.release()
        elif self.context.request.memory is not None:
            self.context.request.memory.release()


@dataclass(frozen=True)
class CallEnvironment:
    """The objects that the handlers of all unary methods of a server share.

    Attributes:
      max_message_bytes: the largest size of a request message after decompression, in bytes.
    """

    executor: CallExecutor
    observer: CallObserver
    memory_budget: MemoryBudget
    max_message_bytes: int


def build_unary_handler(
    name: str,
    method: UnaryMethod,
    environment: CallEnvironment,
    admission: CallAdmission | None = None,
) -> grpc.RpcMethodHandler:
    """Build grpcio's handler of a unary method.

    The method is declared to grpcio as a method with a stream of requests.

    Args:
      name: the full name of the method, such as "/tensorflow.serving.PredictionService/Predict".
      admission: admits or refuses the calls when their message has arrived; None to admit all
        calls.
    """
    executor = environment.executor
    read_model_name = method.read_model_name
    if method.reads_metadata_of is not None:
        read_model_name = partial(executor.read_description_queue, method.reads_metadata_of)
    handler = UnaryHandler(name, method, environment, admission, read_model_name)
    executor.register(
        handler,
        pool=method.pool,
        is_quick=method.is_quick,
        admission=admission,
        read_model_name=read_model_name,
    )
    return grpc.stream_unary_rpc_method_handler(handler)


class UnaryHandler:
    """The handler of a unary method. grpcio calls it like a function, once for each call."""

    def __init__(
        self,
        name: str,
        method: UnaryMethod,
        environment: CallEnvironment,
        admission: CallAdmission | None,
        read_model_name: ReadModelName,
    ) -> None:
        self._name = name
        self._read_model_name = read_model_name
        self._method = method
        self._environment = environment
        self._executor = environment.executor
        self._admission = admission
        self._is_queued = method.pool is None and not method.is_quick

    def __call__(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Answer a call, or end it with the code and the message of an error."""
        suspended: _UnaryCall | None = self._executor.resume(messages)
        running = suspended or _UnaryCall(CallContext(self._executor.first_context(messages)))
        call, reply, status, is_over = running.context, b"", "OK", True
        unsent_bytes = 0
        self._environment.observer.enter(call, context)
        try:
            if running.pending is not None:
                reply = running.pending.finish()
            elif running.content is not None:
                reply = self._run(messages, running, running.content)
            else:
                reply = self._answer(messages, context, running)
            if len(reply) >= _MIN_COUNTED_BYTES:
                # grpcio keeps the response, and a copy of it, until it is sent.
                assert call.request.memory is not None
                call.request.memory.resize(2 * len(reply))
                unsent_bytes = len(reply)
            return reply
        except (CallSuspended, CallMoved):
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
            # Raise the exception again: grpcio has raised it because the client has cancelled the
            # call, and expects that the handler lets it propagate.
            status = Code.CANCELLED.name
            raise
        except Exception:
            logger.exception("a call has failed")
            status, call.error = Code.INTERNAL.name, _INTERNAL_ERROR
            context.abort(grpc.StatusCode.INTERNAL, _INTERNAL_ERROR)
        finally:
            if is_over:
                CLOCK.unwatch(call.request)
                if unsent_bytes:
                    self._release_when_sent(running, context)
                else:
                    running.release()
                self._environment.observer.record(
                    *(self._name, call, status, context, self._method.runs_model),
                    *(running.num_bytes, len(reply)),
                )
        raise AssertionError("abort never returns")

    def _release_when_sent(self, running: _UnaryCall, context: grpc.ServicerContext) -> None:
        """Release a call when gRPC has sent its response, or its client has cancelled it."""
        unread = self._executor.unread_responses
        unread.track(context)

        def release() -> None:
            unread.untrack(context)
            running.release()

        if not context.add_callback(release):
            release()

    def _answer(
        self, messages: Iterator[bytes], context: grpc.ServicerContext, running: _UnaryCall
    ) -> bytes:
        """Receive the request message of a call, and return the serialised response."""
        executor, environment, call = self._executor, self._environment, running.context
        if self._admission is None:
            message = executor.receive_first(messages, context)
        else:
            message, running.admitted = executor.receive_admitted(
                messages, context, self._admission
            )
        memory = None if running.admitted is None else running.admitted.memory
        if message is not None and self._is_queued:
            call.request = executor.wait_for_turn(
                messages, context, memory, partial(self._read_model_name, message)
            )
            call.is_queued = True
        else:
            call.request = executor.make_request(messages, context, memory)
        call.timeline.begin_decoding()
        if message is None:
            raise InvalidInput("the call has no request message. Send exactly one.")
        running.num_bytes = len(message)
        if not context.add_callback(call.request.cancellation.cancel):
            call.request.cancellation.cancel()
        CLOCK.watch(call.request)
        call.request.check()
        if memory is None:
            memory = environment.memory_budget.reserve()
            call.request = replace(call.request, memory=memory)
        content = compression.decompress(
            message, environment.max_message_bytes, memory, call.request.check
        )
        return self._run(messages, running, content)

    def _run(
        self, messages: Iterator[bytes], running: _UnaryCall, content: bytes | memoryview
    ) -> bytes:
        """Call the function of the method, and return the serialised response."""
        executor, memory = self._executor, running.context.request.memory
        assert memory is not None
        reserved_bytes = memory.num_bytes
        try:
            result = self._method.function(content, running.context)
        except WouldBlock:
            memory.resize(reserved_bytes)
            running.content = content
            executor.move(messages, running)
        if isinstance(result, Pending):
            running.pending = result
            executor.suspend(messages, running, result)
            result = result.finish()
        return result


def build_rejecting_handler(
    name: str, error: TpuserveError, observer: CallObserver, pool: ThreadPool
) -> grpc.RpcMethodHandler:
    """Build a handler that ends a call with an error before any message is read."""

    def reject_call(messages: Iterator[bytes], context: grpc.ServicerContext) -> NoReturn:
        call = CallContext()
        call.error = str(error)
        observer.record(name, call, error.code.name, context)
        errors.abort_with_error(context, error)

    # Run the handler in a separate pool: the server's executor might run it only when the request
    # message has arrived.
    reject_call.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return grpc.stream_unary_rpc_method_handler(reject_call)
