"""Chooses the class of the thread pool that runs gRPC calls."""

import dataclasses
import logging
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import grpc

from server.frontends.grpc.executor import grpcio_compat
from server.frontends.grpc.executor.call_admission import CallAdmission
from server.frontends.grpc.executor.call_executor import (
    BlockingTicket,
    CallExecutor,
    ReadModelName,
    SendMessage,
)
from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.stalled_calls import StalledCallLimits
from server.process.thread_pool import ThreadPool
from server.scheduling.request_queues import RequestQueues

# After a thread has waited for this number of seconds for the first message of its call, the pool
# adds another thread if other calls are queued.
_SLOW_MESSAGE_SECONDS = 0.1
# The number of threads for methods registered with `is_quick`. Few threads suffice, because such a
# method takes long only if its request message is late.
_QUICK_THREADS = 4
# The largest number of calls whose message has not arrived: of all clients, and of one client.
# CompletionQueueThreadPool allows more such calls, but here each of them occupies a thread.
_MAX_WAITING_CALLS, _MAX_WAITING_CALLS_PER_PEER = 800, 200
logger = logging.getLogger(__name__)


class DefaultThreadPool(CallExecutor):
    """Runs calls in threads, each of which first blocks until the message of its call arrives.

    The number of calls that run at the same time is limited. With a plain ThreadPoolExecutor, a few
    clients could block all threads by beginning calls and sending no message.
    """

    def __init__(
        self,
        max_concurrent_calls: int,
        limits: StalledCallLimits | None = None,
        queues: RequestQueues | None = None,
        default_timeout_ms: float | None = None,
    ) -> None:
        limits = limits or StalledCallLimits()
        super().__init__(
            max_concurrent_calls,
            dataclasses.replace(
                limits,
                max_calls=min(limits.max_calls, _MAX_WAITING_CALLS),
                max_calls_per_peer=min(limits.max_calls_per_peer, _MAX_WAITING_CALLS_PER_PEER),
            ),
            queues,
            default_timeout_ms,
        )
        self._queue: SimpleQueue[CallFuture | None] = SimpleQueue()
        self._quick_pool = ThreadPool(_QUICK_THREADS, "grpc-quick")
        self._size = 0
        self._num_awaiting_turn = 0
        self._lock = threading.Lock()
        for _ in range(max_concurrent_calls):
            self._add_thread()
        self._reaper.start(self.handle_stalled_calls)
        self.unread_responses.start()

    def start(self, server: grpc.Server) -> None:
        """Start a grpc.Server that was created with this executor as its thread pool."""
        server.start()

    def register(
        self,
        behavior: Any,
        *,
        pool: ThreadPool | None = None,
        is_quick: bool = False,
        admission: CallAdmission | None = None,
        read_model_name: ReadModelName = lambda raw: "",
    ) -> None:
        """Choose the threads that run a method. Arguments as for `CallExecutor.register`."""
        method_pool = self._quick_pool if is_quick else pool
        if method_pool is not None:
            behavior.experimental_thread_pool = method_pool

    def submit(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> CallFuture:
        """Queue a call, which one of the executor's threads then runs.

        Only grpcio calls this method.
        """
        future = CallFuture(function, args)
        self._queue.put(future)
        if self._reaper.has_waiting_calls or self._num_awaiting_turn:
            self._add_replacements()
        return future

    def _block(self, ticket: BlockingTicket) -> None:
        with self._lock:
            self._num_awaiting_turn += 1
        try:
            self._add_replacements()
            super()._block(ticket)
        finally:
            with self._lock:
                self._num_awaiting_turn -= 1

    def stream_writer(self, context: grpc.ServicerContext, send: SendMessage) -> SendMessage:
        """Return `send`, grpcio's own function, which blocks while the client does not read."""
        return send

    def handle_stalled_calls(self) -> None:
        """Add threads for queued calls, and cancel the calls that exceed `StalledCallLimits`.

        The executor calls this method every second.
        """
        self._add_replacements()
        self._reaper.cancel_stalled()

    def shutdown(self) -> None:
        """End the threads of the executor, after the calls that are already queued."""
        self._reaper.close()
        self.unread_responses.close()
        self._quick_pool.shutdown(wait=False)
        for _ in range(self._size):
            self._queue.put(None)

    @property
    def size(self) -> int:
        """The number of threads, which may be larger than `max_concurrent_calls`."""
        return self._size

    def _add_replacements(self) -> None:
        num_queued = self._queue.qsize()
        try:
            for _ in range(min(num_queued, self._target_size(num_queued) - self._size)):
                self._add_thread()
        except RuntimeError as error:
            # Go on with the existing threads. The reaper tries again in a second.
            logger.warning("%s: queued calls wait for the %d gRPC threads", error, self._size)

    def _target_size(self, num_queued: int) -> int:
        num_stalled = len(self._reaper.calls_waiting_longer_than(_SLOW_MESSAGE_SECONDS))
        if num_stalled >= self._max_concurrent_calls:
            # If all threads wait for messages, add a thread for each queued call. A single new
            # thread would not suffice: it could take a call whose message is late, and also wait.
            num_stalled += num_queued
        return self._max_concurrent_calls + num_stalled + self._num_awaiting_turn

    def _add_thread(self) -> None:
        with self._lock:
            # Start the thread first, because this fails if the system cannot start a thread.
            name = f"grpc-{self._size + 1}"
            threading.Thread(target=self._run_calls, name=name, daemon=True).start()
            self._size += 1

    def _run_calls(self) -> None:
        while not self._leave_if_surplus():
            future = self._queue.get()
            if future is None:
                break
            future.run()
            self.end_turn()
            # Delete the future of the finished call, which refers to the request message. Otherwise
            # the message would stay in memory until this thread runs its next call.
            del future

    def _leave_if_surplus(self) -> bool:
        """Return whether the executor has too many threads, so that the current thread must end."""
        if self._size <= self._max_concurrent_calls:
            return False
        with self._lock:
            if self._size <= self._target_size(self._queue.qsize()):
                return False
            self._size -= 1
            return True


def create_call_executor(
    max_concurrent_calls: int,
    queues: RequestQueues | None = None,
    default_timeout_ms: float | None = None,
    *,
    max_pending_bytes: int = sys.maxsize,
    allow_direct_polling: bool = True,
) -> CallExecutor:
    """Create the fastest executor that the installed grpcio supports.

    Args:
      max_concurrent_calls: the largest number of calls that run at the same time.
      queues: the queue of each model, in which calls wait until they may run; None for queues that
        no other frontend shares.
      default_timeout_ms: the milliseconds in which a call without a deadline must be answered; None
        for no limit.
      max_pending_bytes: the largest total size, in bytes, of request messages that have not arrived
        completely. Only the parts that have arrived count.
      allow_direct_polling: whether the executor may use grpcio's private API to poll for events in
        its own threads.

    Returns:
      A CompletionQueueThreadPool if `grpcio_compat` finds that the installed grpcio supports one;
      else a DefaultThreadPool.
    """
    limits = StalledCallLimits(max_pending_bytes=max_pending_bytes)
    if not allow_direct_polling:
        return DefaultThreadPool(max_concurrent_calls, limits, queues, default_timeout_ms)
    if grpcio_compat.supports_direct_polling():
        from server.frontends.grpc.executor.cq_thread_pool import CompletionQueueThreadPool

        return CompletionQueueThreadPool(max_concurrent_calls, limits, queues, default_timeout_ms)
    logger.warning(
        "grpcio %s has other internals than this server knows. The gRPC frontend works, but "
        "answers small requests more slowly. Install grpcio 1.72.1 to 1.85 for full speed.",
        grpc.__version__,
    )
    return DefaultThreadPool(max_concurrent_calls, limits, queues, default_timeout_ms)
