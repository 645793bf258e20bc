"""Chooses where handlers run: in the event loop if they are quick, else in threads."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from server.admission import cancellation as cancellations
from server.admission.cancellation import Cancellation
from server.admission.latency_tracker import LatencyTracker
from server.frontends.rest.transport.responses import Response
from server.parsing.request_parser import MAX_LOCAL_BYTES
from server.scheduling.request_queues import RequestQueues
from server.scheduling.ticket import InlineTicket, RunPool, Ticket
from server.servables.pending import Pending
from tpuserve.errors import Cancelled, DeadlineExceeded, QueueFull, TpuserveError

Result = TypeVar("Result")

# The event loop runs a model only for requests of at most this number of bytes: larger ones take
# longer.
MAX_INLINE_BYTES = 4096
# Requests with more bytes than this take at most half of the simultaneous runs of their model, so
# that small requests never wait until large requests are parsed.
_MAX_SMALL_BYTES = MAX_LOCAL_BYTES
# The largest number of threads. The queues let fewer requests run at the same time.
_MAX_THREADS = 4096
# The largest number of loads and unloads of models that clients wait for at the same time.
_CHANGE_THREADS = 4


class Workers:
    """Runs requests in threads when their turn comes, or, if quick and small, in the event loop.

    Attributes:
      may_run_inline: Whether quick and small requests run in the event loop.
    """

    def __init__(
        self,
        threads: int,
        timeout_ms: float | None,
        may_run_inline: bool = True,
        queues: RequestQueues | None = None,
    ) -> None:
        """Create workers without threads.

        Args:
          threads: The largest number of small requests that run at the same time; see
            `RunPool.max_running`. Half as many large requests run beside them.
          timeout_ms: The milliseconds to wait for a result. None means no limit.
          may_run_inline: Whether quick and small requests run in the event loop. Must be False if
            requests wait for each other, as with batching.
          queues: Decide when requests run. None means queues that no other frontend shares.
        """
        self._queues = RequestQueues() if queues is None else queues
        self._run_pool = RunPool(threads)
        self._large_pool = RunPool(max(1, threads // 2), share=0.5)
        # This pool sets no limit of its own: the queues decide how many requests run.
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="rest-worker")
        self._change_threads = ThreadPoolExecutor(_CHANGE_THREADS, thread_name_prefix="rest-change")
        self._timeout_ms = timeout_ms
        self.may_run_inline = may_run_inline

    def timeout_error(self) -> DeadlineExceeded:
        """Return the error of a request that takes longer than the time limit."""
        return DeadlineExceeded(
            f"the request was not answered within {self._timeout_ms:g} ms "
            f"(--rest_api_timeout_in_ms)"
        )

    async def run(
        self,
        model: str,
        work: Callable[[], Result],
        size: int,
        tracker: LatencyTracker,
        on_dropped: Callable[[], object] = lambda: None,
        cancellation: Cancellation | None = None,
        on_submitted: Callable[[], object] = lambda: None,
    ) -> Result:
        """Run a function, in the event loop or in a thread, and return its result.

        Args:
          model: The name of the model in whose queue the request waits. "" means no model.
          work: The function. May block.
          size: The size of the request in bytes. Only small requests run in the event loop.
          tracker: Predicts whether the request is quick, from the latencies of earlier requests of
            its route. The latency of a small request is added to these.
          on_dropped: Called if `work` never runs.
          cancellation: Takes the request out of its queue. None means that the request cannot be
            cancelled.
          on_submitted: Called once the request runs in a thread or waits for one.

        Raises:
          DeadlineExceeded: A request that is not run in the event loop has no result within the
            `timeout_ms` that was passed to the constructor. Work that has begun continues, and its
            result is discarded.
          QueueFull: The queue of the model refuses the request.
          WaitedTooLong: The queue of the model refuses the request, after it has waited.
          Cancelled: The request was cancelled while it waited.
        """
        if self.may_run_inline and size <= MAX_INLINE_BYTES and tracker.is_quick:
            inline = self.begin_inline(model)
            if inline is not None:
                try:
                    return _run_timed(tracker, work)
                finally:
                    self.end_inline(inline)
        pool = self._run_pool if size <= _MAX_SMALL_BYTES else self._large_pool
        if size <= MAX_INLINE_BYTES:
            # Record the latencies of small requests only: only these may run in the event loop.
            work = partial(_run_timed, tracker, work)
        ticket = _WorkTicket(model, pool, self, work, on_dropped)
        try:
            if self._queues.submit(ticket):
                ticket.start()
        except QueueFull:
            on_dropped()
            raise
        on_submitted()
        if cancellation is not None:
            cancellation.add_callback(partial(self._withdraw, ticket))
        try:
            timeout_seconds = None if self._timeout_ms is None else self._timeout_ms / 1000
            return cast(Result, await asyncio.wait_for(ticket.future, timeout_seconds))
        except asyncio.TimeoutError:
            raise self.timeout_error() from None
        finally:
            if ticket.future.cancelled():
                self._withdraw(ticket)

    async def run_change(
        self, work: Callable[[], Result], on_dropped: Callable[[], object] = lambda: None
    ) -> Result:
        """Run a function that loads or unloads a model, in a thread of its own.

        Such a function may wait for minutes, for example for requests in flight: it takes neither
        the event loop nor the threads of the requests that run models.

        Args:
          work: The function.
          on_dropped: Called if `work` never runs.

        Raises:
          DeadlineExceeded: The function has no result within the `timeout_ms` that was passed to
            the constructor. A function that has begun continues, and its result is discarded.
        """
        future = self._change_threads.submit(work)
        timeout_seconds = None if self._timeout_ms is None else self._timeout_ms / 1000
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout_seconds)
        except asyncio.TimeoutError:
            raise self.timeout_error() from None
        finally:
            if future.cancel():
                on_dropped()

    def begin_inline(self, model: str) -> Ticket | None:
        """Begin to run a request in the event loop, unless the request would have to wait.

        Args:
          model: The name of the model that runs.

        Returns:
          The ticket to pass to `end_inline`. None if a thread must run the request in its turn.
        """
        ticket = InlineTicket(model, self._run_pool)
        return ticket if self._queues.try_start(ticket) else None

    def end_inline(self, ticket: Ticket) -> None:
        """Record that the request that `begin_inline` admitted is done, and start the next ones.

        The next requests run in the threads of the pool.
        """
        following = self._queues.finish(ticket)
        if following is not None:
            following.start()

    def close(self) -> None:
        """Stop the threads. Functions that have not begun to run never run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._change_threads.shutdown(wait=False, cancel_futures=True)

    def _withdraw(self, ticket: "_WorkTicket") -> None:
        if self._queues.withdraw(ticket):
            ticket.refuse(Cancelled(cancellations.MESSAGE))

    def _run_tickets(self, ticket: Ticket | None) -> None:
        """Run a request whose turn has come, and then the requests that may run after it."""
        while isinstance(ticket, _WorkTicket):
            ticket.run()
            ticket = self._queues.finish(ticket)


class _WorkTicket(Ticket):
    """The ticket of a request in `RequestQueues`; the request runs in a thread.

    Attributes:
      future: Gets the result of the work, or its exception.
    """

    __slots__ = ("_loop", "_on_dropped", "_work", "_workers", "future")

    def __init__(
        self,
        model: str,
        pool: RunPool,
        workers: Workers,
        work: Callable[[], Any],
        on_dropped: Callable[[], object],
    ) -> None:
        super().__init__(model, pool)
        self._workers = workers
        self._work = work
        self._on_dropped = on_dropped
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def start(self) -> None:
        self._workers._threads.submit(self._workers._run_tickets, self)

    def refuse(self, error: TpuserveError) -> None:
        self._on_dropped()
        self._finish(None, error)

    def run(self) -> None:
        try:
            self._finish(self._work(), None)
        except BaseException as error:
            self._finish(None, error)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        # Ignore the error of a closed event loop: the run has outlasted the server.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_set_result, self.future, result, error)


def _set_result(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.cancelled():
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
    # Only `finish` gives back what a waiting request holds, such as its admission slot. Its error
    # is of no interest, because the client has had an answer.
    with suppress(Exception):
        pending.finish().release()


def _run_timed(tracker: LatencyTracker, work: Callable[[], Result]) -> Result:
    started = time.perf_counter()
    try:
        return work()
    finally:
        tracker.record(time.perf_counter() - started)
