"""Both ends of a TPU's infeed and outfeed, each driven by a thread while the main one runs loops.

The main thread announces how many steps a loop has. The infeed thread feeds as many batches, the
outfeed thread takes as many results; either may run behind, neither may be left waiting when the
other, or the main thread, has failed.
"""

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from tpuserve.errors import TpuRunError
from trainer.backends.tpu.transfer.error_rendezvous import (
    ErrorKind,
    ErrorRendezvous,
    classify_error,
)
from trainer.infeed import Infeed

logger = logging.getLogger("tensorflow.trainer")

# How long the main thread may take to fail by itself, and to say more, when another one has.
_GRACE_SECS = 5.0
# How long a thread is waited for whose session is closed: only Python code can hold it then.
_LEAVE_SECS = 3.0


class InfeedOutfeedHook(tf.compat.v1.train.SessionRunHook):
    """Starts, feeds, watches and ends the two threads of a session."""

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
        """Nothing runs until the first loop is announced.

        Args:
          infeed: what to feed.
          enqueue: the op that does, as the session runs it.
          rendezvous: takes the errors of the threads, and ends the threads when it is left.
          results: what to fetch for each result; None where nothing leaves the cores.
          on_result: called in the outfeed thread with the session and what was fetched.
          results_per_loop: how many results a loop of so many steps gives.
          waits_for_results: whether a run is over only when its results are taken.
          end_infeed, end_outfeed: ops that wake whoever waits at a queue of an emulated TPU; a
            real one is woken by closing the session.
          sleep_secs: how long the first batch waits.
        """
        self._infeed, self._enqueue = infeed, enqueue
        self._rendezvous = rendezvous
        self._results = results
        self._on_result = on_result or (lambda session, values: None)
        self._results_per_loop = results_per_loop
        self._waits = waits_for_results
        self._end_infeed, self._end_outfeed = end_infeed, end_outfeed
        self._sleep_secs = sleep_secs
        self._session: Any = None
        self._workers: dict[str, _Worker] = {}
        rendezvous.on_exit(self.close)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Leaves a session behind that was lost, and what was announced for it."""
        self.close()
        self._session = session

    def send_next_batch_signal(self, iterations: int) -> None:
        """Says, before a loop runs, how many steps it has."""
        if not self._workers:
            self._workers["infeed"] = _Worker("infeed", self._feed, self._session, self._failed)
            if self._results is not None:
                self._workers["outfeed"] = _Worker(
                    "outfeed", self._take, self._session, self._failed
                )
        for each in self._workers.values():
            each.send_next_batch_signal(iterations)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Waits for the results of the loop, where that was asked for.

        Raises:
          Exception: what a thread has failed with.
        """
        outfeed = self._workers.get("outfeed")
        if self._waits and outfeed is not None:
            outfeed.wait()
        cause = self._rendezvous.cause
        if cause is not None:
            raise cause

    def end(self, session: Any) -> None:
        """Takes the results that are still to come, and ends the threads."""
        # No loop is left that could take a batch, or send a result: whoever still waits for one
        # at a queue would wait for ever.
        for name, end, secs in (
            ("infeed", self._end_infeed, _LEAVE_SECS),
            ("outfeed", self._end_outfeed, None),
        ):
            worker = self._workers.get(name)
            if worker is not None:
                worker.finish()
                if end is not None:
                    session.run(end)
                worker.join(secs)

    def close(self) -> None:
        """Ends the threads of a session that is closed."""
        workers, self._workers = self._workers, {}
        for each in workers.values():
            each.is_over.set()
            each.finish()
        for each in workers.values():
            each.join(_LEAVE_SECS)

    def _feed(self, worker: "_Worker", iterations: int) -> None:
        if worker.is_new:
            worker.is_over.wait(self._sleep_secs)
        most = self._infeed.max_iterations
        while iterations > 0:
            fed = iterations if most is None else min(iterations, most)
            try:
                worker.session.run(self._enqueue, {self._infeed.iterations: fed})
            except tf.errors.OutOfRangeError:
                if self._end_infeed is None:
                    raise TpuRunError(
                        "the input ended before training did, and a TPU cannot stop within a "
                        "loop. Let input_fn's Dataset repeat(), or train fewer steps."
                    ) from None
                # What was fed is computed; then the loop finds its queues empty and ends.
                worker.session.run(self._end_infeed)
                raise
            iterations -= fed

    def _take(self, worker: "_Worker", iterations: int) -> None:
        for _ in range(self._results_per_loop(iterations)):
            self._on_result(worker.session, worker.session.run(self._results))

    def _failed(self, worker: "_Worker", error: Exception) -> None:
        if isinstance(error, tf.errors.OutOfRangeError):
            # The input, and with it a loop, has ended early.
            return
        self._rendezvous.record(worker.name, error)
        is_cause = classify_error(error) is ErrorKind.CAUSE
        if is_cause:
            logger.error(
                "%s failed, which ends the run: %s follows", worker.name, type(error).__name__
            )
        # A core of a real TPU that fails takes infeed and outfeed along.
        is_plain = is_cause and self._end_infeed is not None
        if not worker.is_over.wait(0 if is_plain else _GRACE_SECS):
            worker.session.close()


class _Worker:
    """A thread that works off, for one session, the loops that are announced.

    Attributes:
      is_over: set when nobody waits for it any more.
      is_new: whether no loop is done yet.
    """

    def __init__(
        self,
        name: str,
        work: Callable[["_Worker", int], None],
        session: Any,
        failed: Callable[["_Worker", Exception], None],
    ) -> None:
        """Starts it.

        Args:
          name: of the thread.
          work: called in it with each number of steps that is announced.
          session: of what it runs.
          failed: called in it with the error that ends it.
        """
        self.name, self.session = name, session
        self.is_over = threading.Event()
        self.is_new = True
        self._announced: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done = threading.Semaphore(0)
        self._thread = threading.Thread(
            target=partial(self._run, work, failed), name=name, daemon=True
        )
        self._thread.start()

    def send_next_batch_signal(self, iterations: int) -> None:
        """Adds a loop."""
        self._announced.put(iterations)

    def finish(self) -> None:
        """Has it end once it has worked off all loops."""
        self._announced.put(None)

    def wait(self) -> None:
        """Returns when one more loop is worked off, or never will be."""
        while not self._done.acquire(timeout=0.1):
            if not self._thread.is_alive():
                return

    def join(self, secs: float | None) -> None:
        """Returns when it has ended, or after so many seconds."""
        # A generator that is collected ends here in whatever thread happens to do that.
        if self._thread is not threading.current_thread():
            self._thread.join(secs)

    def _run(
        self,
        work: Callable[["_Worker", int], None],
        failed: Callable[["_Worker", Exception], None],
    ) -> None:
        try:
            while (iterations := self._announced.get()) is not None:
                work(self, iterations)
                self.is_new = False
                self._done.release()
        except Exception as error:
            failed(self, error)
