"""A SessionRunHook that drives infeed and outfeed in two threads.

Meanwhile the main thread runs loops of steps with `session.run`. Before each loop it passes the
number of steps to both threads.
"""

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from tpuserve.errors import Code, CodedError
from trainer.backends.tpu.transfer.error_rendezvous import (
    ErrorKind,
    ErrorRendezvous,
    classify_error,
)
from trainer.infeed import Infeed

logger = logging.getLogger("tensorflow.trainer")

# How long, in seconds, a failed infeed or outfeed thread waits before it closes the session. In
# this time the main thread can fail with a more informative error.
_GRACE_SECS = 5.0
# How long, in seconds, to wait for the end of the infeed or outfeed thread. The wait has a limit
# because the thread can run Python code that never ends, such as a user's function.
_JOIN_SECS = 3.0


class InfeedOutfeedHook(tf.compat.v1.train.SessionRunHook):
    """Starts and ends the infeed and outfeed threads of a session, and raises their errors.

    Args:
      infeed: has the placeholder for the number of batches that a run of `enqueue` feeds.
      results: the tensors that the session fetches to receive one outfeed; None without an
        outfeed.
      on_result: called in the outfeed thread with the session and the fetched values; None to
        ignore the values.
      results_per_loop: takes the number of steps of a loop and returns the number of outfeeds
        to receive.
      waits_for_results: whether `session.run` of the loop returns only after the last outfeed
        of the loop has been received.
      end_infeed: op that ends the wait of cores for a batch; None if the TPU runtime has no
        such op, and only closing the session ends the wait.
      end_outfeed: op that ends the wait of the host for an outfeed; None if the TPU runtime has
        no such op.
      sleep_secs: the delay before the first batch is fed, in seconds.
    """

    def __init__(
        self,
        infeed: Infeed,
        enqueue: Any,
        rendezvous: ErrorRendezvous,
        *,
        results: Any = None,
        on_result: Callable[[Any, Any], None] | None = None,
        results_per_loop: Callable[[int], int] = lambda iterations: iterations,
        waits_for_results: bool = False,
        end_infeed: Any = None,
        end_outfeed: Any = None,
        sleep_secs: float = 0.0,
    ) -> None:
        self._infeed, self._enqueue = infeed, enqueue
        self._rendezvous = rendezvous
        self._results = results
        self._on_result = on_result or (lambda session, values: None)
        self._results_per_loop = results_per_loop
        self._waits_for_results = waits_for_results
        self._end_infeed, self._end_outfeed = end_infeed, end_outfeed
        self._sleep_secs = sleep_secs
        self._session: Any = None
        self._workers: dict[str, _Worker] = {}
        rendezvous.on_exit(self.close)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Store the new session, and end the threads of a previous session, which was lost."""
        self.close()
        self._session = session

    def send_next_batch_signal(self, iterations: int) -> None:
        """Pass the number of steps of the next loop to the infeed and outfeed threads.

        The first call starts the threads.
        """
        if not self._workers:
            self._workers["infeed"] = _Worker("infeed", self._feed, self._session, self._fail)
            if self._results is not None:
                self._workers["outfeed"] = _Worker(
                    "outfeed", self._receive, self._session, self._fail
                )
        for worker in self._workers.values():
            worker.enqueue_loop(iterations)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Wait until the outfeed of the loop has been received, if `waits_for_results` is set."""
        outfeed = self._workers.get("outfeed")
        if self._waits_for_results and outfeed is not None:
            outfeed.wait_for_loop()
        cause = self._rendezvous.cause
        if cause is not None:
            raise cause

    def end(self, session: Any) -> None:
        """Receive the outfeeds that have not arrived yet, and end the threads."""
        # Wake a thread that still waits to feed a batch or to receive an outfeed. It would wait
        # forever, because no loop follows.
        for name, end_op, secs in (
            ("infeed", self._end_infeed, _JOIN_SECS),
            ("outfeed", self._end_outfeed, None),
        ):
            worker = self._workers.get(name)
            if worker is not None:
                worker.finish()
                if end_op is not None:
                    session.run(end_op)
                worker.join(secs)

    def close(self) -> None:
        """End the threads, because their session is closed; do not wait for outfeeds."""
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.is_over.set()
            worker.finish()
        for worker in workers.values():
            worker.join(_JOIN_SECS)

    def _feed(self, worker: "_Worker", iterations: int) -> None:
        """Feed the batches of one loop; called in the infeed thread."""
        if worker.is_new:
            worker.is_over.wait(self._sleep_secs)
        max_iterations = self._infeed.max_iterations
        while iterations > 0:
            count = iterations if max_iterations is None else min(iterations, max_iterations)
            try:
                worker.session.run(self._enqueue, {self._infeed.iterations: count})
            except tf.errors.OutOfRangeError:
                if self._end_infeed is None:
                    raise CodedError(
                        "The input ended before training did, and a TPU cannot stop within a "
                        "loop. Let input_fn's Dataset repeat(), or train fewer steps.",
                        Code.ABORTED,
                    ) from None
                # The input has ended, so end the loop early by closing the infeed queues. The cores
                # still process the batches in the queues, but do not wait for more.
                worker.session.run(self._end_infeed)
                raise
            iterations -= count

    def _receive(self, worker: "_Worker", iterations: int) -> None:
        """Receive the outfeeds of one loop; called in the outfeed thread."""
        for _ in range(self._results_per_loop(iterations)):
            self._on_result(worker.session, worker.session.run(self._results))

    def _fail(self, worker: "_Worker", error: Exception) -> None:
        """Record the error of a thread, and close the session if the run does not end soon."""
        if isinstance(error, tf.errors.OutOfRangeError):
            # Do not record the error: it only reports the end of the input, which is no failure.
            return
        if worker.is_finishing and isinstance(error, tf.errors.CancelledError):
            # Do not record the error: it only reports that the method `end` has closed the queue on
            # which the thread waited. This is normal on several hosts.
            return
        self._rendezvous.record(worker.name, error)
        is_cause = classify_error(error) is ErrorKind.CAUSE
        if is_cause:
            logger.error(
                "%s failed, which ends the run: %s follows", worker.name, type(error).__name__
            )
        # On an emulated TPU, which has an op `end_infeed`, close the session at once: no other
        # thread can have a more informative error.
        is_root_cause = is_cause and self._end_infeed is not None
        if not worker.is_over.wait(0 if is_root_cause else _GRACE_SECS):
            worker.session.close()


class _Worker:
    """The infeed or outfeed thread of a session, with a queue of the loops to feed or receive."""

    def __init__(
        self,
        name: str,
        work: Callable[["_Worker", int], None],
        session: Any,
        on_error: Callable[["_Worker", Exception], None],
    ) -> None:
        self.name, self.session = name, session
        self.is_over = threading.Event()
        self.is_finishing = False
        self.is_new = True
        self._loops: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done = threading.Semaphore(0)
        self._thread = threading.Thread(
            target=partial(self._run, work, on_error), name=name, daemon=True
        )
        self._thread.start()

    def enqueue_loop(self, iterations: int) -> None:
        """Add a loop with this number of steps to the thread's queue."""
        self._loops.put(iterations)

    def finish(self) -> None:
        """Let the thread end after the loops in its queue."""
        self.is_finishing = True
        self._loops.put(None)

    def wait_for_loop(self) -> None:
        """Wait until the thread has processed one more loop, or has ended."""
        while not self._done.acquire(timeout=0.1):
            if not self._thread.is_alive():
                return

    def join(self, secs: float | None) -> None:
        """Wait until the thread has ended, for at most `secs` seconds; None waits without limit."""
        # Do not let the thread join itself: that raises an error.
        if self._thread is not threading.current_thread():
            self._thread.join(secs)

    def _run(
        self,
        work: Callable[["_Worker", int], None],
        on_error: Callable[["_Worker", Exception], None],
    ) -> None:
        try:
            while (iterations := self._loops.get()) is not None:
                work(self, iterations)
                self.is_new = False
                self._done.release()
        except Exception as error:
            on_error(self, error)
