"""Runs the handlers of requests: in the event loop if they are quick, and otherwise in threads."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from server.admission.latency_tracker import MAX_INLINE_BYTES, LatencyTracker
from server.frontends.rest.transport.responses import Response
from server.parsing.request_parser import MAX_LOCAL_BYTES
from server.process.thread_pool import ThreadPool
from server.request import CLOCK, RequestContext
from server.scheduling.request_queues import RequestQueues
from server.scheduling.ticket import InlineTicket, RunnableTicket, RunPool, Ticket
from server.servables.pending import Pending
from tpuserve.errors import TpuserveError

Result = TypeVar("Result")

# A request with more bytes than this is large. A model limits how many of its requests run at the
# same time.
_MAX_SMALL_BYTES = MAX_LOCAL_BYTES
# The largest number of threads. It is so large that it does not limit the requests that run at the
# same time: the queues of the models do that.
_MAX_THREADS = 4096
# The number of threads that load and unload models at the request of clients.
_CHANGE_THREADS = 4


class Workers:
    """Runs quick and small requests in the event loop, and all other requests in threads.

    A request that needs a thread waits in the queue of its model until it may run.

    Args:
      threads: The largest number of small requests that run in threads at the same time. In
        addition, half as many large requests can run.
      queues: The queue of each model, in which requests wait until they may run. None means
        queues that no other frontend shares.
    """

    def __init__(
        self,
        threads: int,
        queues: RequestQueues | None = None,
    ) -> None:
        self._queues = RequestQueues() if queues is None else queues
        self._run_pool = RunPool(threads)
        self._large_pool = RunPool(max(1, threads // 2), share=0.5)
        # The threads that run requests. The size of this pool does not limit how many requests run
        # at the same time: the queues of the models do that.
        self._threads = ThreadPool(_MAX_THREADS, "rest-worker")
        self._change_threads = ThreadPool(_CHANGE_THREADS, "rest-change")
        self.find_description_queue = self._queues.find_description_queue
        # Requests that only wait for their batch do not run inline.
        self.only_waits = self._queues.only_waits

    async def run(
        self,
        context: RequestContext,
        work: Callable[[], Result],
        size: int,
        tracker: LatencyTracker,
        on_dropped: Callable[[], object] = lambda: None,
        on_submitted: Callable[[], object] = lambda: None,
    ) -> Result:
        """Run a function that handles a request, and return its result.

        The function runs in the event loop if it is quick, and otherwise in a thread, after a wait
        in the queue of its model.

        Args:
          size: The size of the request in bytes. Only small requests run in the event loop.
          tracker: The latencies of the last requests of the same route, which tell whether the
            request is probably quick. The latency of a small request is added.
          on_dropped: Called if `work` is never run, to release the memory of the request and to
            count the request as no longer in flight.
          on_submitted: Called when the request was given to a thread or to the queue. It is not
            called for a request that runs in the event loop.

        Raises:
          CodedError: The request has waited in the queue of the model for too long.
        """
        is_quick = size <= MAX_INLINE_BYTES and tracker.is_quick
        if is_quick and not self.only_waits(context.model):
            inline = self.begin_inline(context)
            if inline is not None:
                try:
                    return _run_timed(tracker, work)
                finally:
                    self.end_inline(inline)
        pool = self._run_pool if size <= _MAX_SMALL_BYTES else self._large_pool
        if size <= MAX_INLINE_BYTES:
            # Record the latencies of small requests only, because only small requests may run in
            # the event loop.
            work = partial(_run_timed, tracker, work)
        ticket = _WorkTicket(context, pool, self, work, on_dropped)
        try:
            if self._queues.submit(ticket):
                ticket.start()
        except TpuserveError:
            on_dropped()
            raise
        on_submitted()
        return cast(Result, await self._wait_for(ticket))

    async def _wait_for(self, ticket: "_WorkTicket") -> Any:
        """Wait for the result of a ticket, but not longer than anybody waits for the request.

        The caller ends the watch over the deadline: the result may be pending.
        """
        context = ticket.context
        give_up = partial(self._give_up, ticket)
        context.cancellation.add_callback(give_up)
        CLOCK.watch(context)
        try:
            return await ticket.future
        finally:
            context.cancellation.remove_callback(give_up)
            if ticket.future.cancelled() and self._queues.withdraw(ticket):
                ticket.drop()

    def run_soon(self, function: Callable[[], object]) -> None:
        """Run a function, whose result is not needed, in a thread."""
        self._threads.run_soon(function)

    async def run_change(
        self,
        context: RequestContext,
        work: Callable[[], Result],
        on_dropped: Callable[[], object] = lambda: None,
    ) -> Result:
        """Run a function that loads or unloads a model, in a separate thread pool.

        Such a function may take minutes.

        Args:
          on_dropped: Called if `work` is never run, to release the memory of the request and to
            count the request as no longer in flight.
        """
        future = self._change_threads.start(work)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Result] = loop.create_future()

        def finish(_: object = None) -> None:
            is_over = future.done() and not future.cancelled()
            error = future.exception() if is_over else context.cancellation.error
            result = future.result() if is_over and error is None else None
            # Ignore the error that the event loop is closed: the server has stopped.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_set_result, waiting, result, error)

        future.add_done_callback(finish)
        context.cancellation.add_callback(finish)
        CLOCK.watch(context)
        try:
            return await waiting
        finally:
            context.cancellation.remove_callback(finish)
            if future.cancel():
                on_dropped()

    def begin_inline(self, context: RequestContext) -> Ticket | None:
        """Begin to run a request in the event loop, unless the request would have to wait.

        Returns:
          The record of the running request, to pass to `end_inline`. None if the request must wait
          in the queue of the model, and then run in a thread.
        """
        ticket = InlineTicket(context, self._run_pool)
        return ticket if self._queues.try_start(ticket) else None

    def end_inline(self, ticket: Ticket) -> None:
        """Record that a request that ran in the event loop has ended.

        The queued requests that may run next are started, in threads.
        """
        self._queues.end(ticket)

    def close(self) -> None:
        """Stop the threads. Functions that have not begun are never run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._change_threads.shutdown(wait=False, cancel_futures=True)

    def _give_up(self, ticket: "_WorkTicket") -> None:
        """End the wait for a ticket whose request was cancelled."""
        if self._queues.withdraw(ticket):
            ticket.drop()
        ticket.finish(None, ticket.context.cancellation.error)


class _WorkTicket(RunnableTicket):
    """The entry of a request in `RequestQueues`. The request waits there until a thread may run it.

    Attributes:
      drop: A function to call if the request is never run.
      future: The asyncio future that gets the result or the exception of the function that handles
        the request.
    """

    __slots__ = ("_loop", "_work", "_workers", "drop", "future")

    def __init__(
        self,
        context: RequestContext,
        pool: RunPool,
        workers: Workers,
        work: Callable[[], Any],
        on_dropped: Callable[[], object],
    ) -> None:
        super().__init__(context, pool)
        self._workers = workers
        self._work = work
        self.drop = on_dropped
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def start(self) -> None:
        self._workers._threads.run_soon(self._workers._queues.run, self)

    def refuse(self, error: TpuserveError) -> None:
        self.drop()
        self.finish(None, error)

    def run(self) -> None:
        try:
            self.finish(self._work(), None)
        except BaseException as error:
            self.finish(None, error)

    def finish(self, result: Any, error: BaseException | None) -> None:
        # Ignore the error that the event loop is closed: the server has stopped before the request
        # has ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_set_result, self.future, result, error)


def _set_result(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        if isinstance(result, Pending):
            result.add_done_callback(partial(_discard, result))
        elif isinstance(result, Response):
            result.release()
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _discard(pending: Pending[Response]) -> None:
    # Call `finish` of the unneeded response, because only `finish` releases the memory of the
    # request and counts the request as no longer in flight.
    with suppress(Exception):
        pending.finish().release()


def _run_timed(tracker: LatencyTracker, work: Callable[[], Result]) -> Result:
    started, is_ok = time.perf_counter(), False
    try:
        result = work()
        is_ok = not isinstance(result, Response) or not result.error
        return result
    finally:
        tracker.record(time.perf_counter() - started, is_ok=is_ok)
