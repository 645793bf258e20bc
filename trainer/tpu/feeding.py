"""Both ends of a TPU's infeed and outfeed, each driven by a thread while the main one runs loops.

The main thread announces how many steps a loop has. The infeed thread feeds as many batches, the
outfeed thread takes as many results; either may run behind, neither may be left waiting when the
other, or the main thread, has failed.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import TpuRunError
from trainer.infeed import Infeed
from trainer.tpu.rendezvous import Rendezvous, is_consequence

logger = logging.getLogger("tensorflow.trainer")

# How long a run that has lost its input may go on before its session is closed under it.
_GRACE_SECS = 5.0


class Feeding(tf.compat.v1.train.SessionRunHook):
    """Starts, feeds, watches and ends the two threads of a session."""

    def __init__(
        self,
        infeed: Infeed,
        enqueue: Any,
        rendezvous: Rendezvous,
        *,
        results: Any = None,
        on_result: Callable[[Any, Any], None] | None = None,
        results_per_loop: Callable[[int], int] = lambda iterations: iterations,
        waits_for_results: bool = False,
        end_infeed: Any = None,
        end_outfeed: Any = None,
        sleep_secs: float = 0.0,
    ) -> None:
        """Nothing runs until a session is created.

        Args:
          infeed: what to feed.
          enqueue: the op that does, as the session runs it.
          rendezvous: takes the errors of the threads.
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
        self._threads: list[threading.Thread] = []
        self._to_feed: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._to_take: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._taken = threading.Semaphore(0)
        self._is_over = threading.Event()

    def announce(self, iterations: int) -> None:
        """Says, before a loop runs, how many steps it has."""
        self._to_feed.put(iterations)
        self._to_take.put(iterations)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts the threads."""
        self._to_feed, self._to_take = queue.SimpleQueue(), queue.SimpleQueue()
        self._taken, self._is_over = threading.Semaphore(0), threading.Event()
        self._threads = [
            threading.Thread(target=self._feed, args=(session,), name="infeed", daemon=True)
        ]
        if self._results is not None:
            self._threads.append(
                threading.Thread(target=self._take, args=(session,), name="outfeed", daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Waits for the results of the loop, where that was asked for."""
        if self._waits and self._results is not None:
            self._wait_for_results()
        if self._rendezvous.has_cause:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Lets the threads finish what was announced, and ends them."""
        self._to_feed.put(None)
        self._to_take.put(None)
        # Whoever still waits at a queue waits for what will not come.
        for thread, end in zip(self._threads, (None, self._end_outfeed), strict=False):
            if end is not None:
                session.run(end)
            while thread.is_alive() and not self._rendezvous.has_cause:
                thread.join(0.1)
        self._is_over.set()

    def _wait_for_results(self) -> None:
        while not self._taken.acquire(timeout=0.1):
            if self._rendezvous.has_cause or not self._threads[-1].is_alive():
                return

    def _feed(self, session: Any) -> None:
        most = self._infeed.max_iterations
        time.sleep(self._sleep_secs)
        try:
            while (iterations := self._to_feed.get()) is not None:
                while iterations > 0:
                    fed = iterations if most is None else min(iterations, most)
                    session.run(self._enqueue, {self._infeed.iterations: fed})
                    iterations -= fed
        except tf.errors.OutOfRangeError:
            self._input_ended(session)
        except Exception as error:
            self._failed("infeed", error, session, self._end_infeed)

    def _input_ended(self, session: Any) -> None:
        if self._end_infeed is not None:
            # What was fed is computed; then the loop finds its queues empty and ends.
            self._run_quietly(session, self._end_infeed)
            return
        self._failed(
            "infeed",
            TpuRunError(
                "the input ended before training did, and a TPU cannot stop within a loop. Let "
                "input_fn's Dataset repeat(), or train fewer steps."
            ),
            session,
            None,
        )

    def _take(self, session: Any) -> None:
        try:
            while (iterations := self._to_take.get()) is not None:
                for _ in range(self._results_per_loop(iterations)):
                    self._on_result(session, session.run(self._results))
                self._taken.release()
        except tf.errors.OutOfRangeError:
            # The loop has ended early, with its input.
            pass
        except Exception as error:
            self._failed("outfeed", error, session, self._end_outfeed)

    def _failed(self, source: str, error: Exception, session: Any, end: Any) -> None:
        self._rendezvous.record(source, error)
        if is_consequence(error):
            return
        logger.error("%s failed: %s", source, str(error).split("\n")[0])
        if end is not None:
            self._run_quietly(session, end)
            # Both ends: the core may wait at the other one.
            self._run_quietly(session, self._end_infeed)
            return
        if not self._is_over.wait(_GRACE_SECS):
            session.close()

    def _run_quietly(self, session: Any, operation: Any) -> None:
        try:
            session.run(operation)
        except (tf.errors.OpError, RuntimeError) as error:
            # The session is closed already, which wakes everyone too.
            logger.debug("ending a queue: %s", error)
