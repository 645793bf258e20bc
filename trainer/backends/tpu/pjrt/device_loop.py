"""Runs several steps in a loop on PJRT devices.

The infeed thread reads batches from the input of this host, and copies them to the devices while
these run earlier steps.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import HostsDiffer
from tpuserve.pjrt.step_program import Dispatch, StepProgram
from trainer.backends.tpu import nan_errors
from trainer.backends.tpu.pjrt.resident_variables import ResidentVariables
from trainer.hosts.group import current_group

# The time, in seconds, after which a waiting thread looks whether the queue has ended.
_POLL_SECS = 0.1


class StepQueue:
    """A queue from one thread to another, which either can end.

    Attributes:
      is_ended: whether a wait for room or for an item fails with tf.errors.OutOfRangeError.
    """

    def __init__(self, capacity: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(capacity)
        self.is_ended = self.is_closed = False

    def put(self, item: Any) -> None:
        """Add an item; wait until there is room for it."""
        self._wait(lambda: self._queue.put(item, timeout=_POLL_SECS))

    def get(self) -> Any:
        """Remove the oldest item and return it; wait until there is one."""
        return self._wait(lambda: self._queue.get(timeout=_POLL_SECS))

    def _wait(self, call: Callable[[], Any]) -> Any:
        while not self.is_closed:
            try:
                return call()
            except (queue.Full, queue.Empty):
                if self.is_ended:
                    raise tf.errors.OutOfRangeError(None, None, "the steps have ended") from None
        raise tf.errors.CancelledError(None, None, "the session is closed")


@dataclass
class Batches:
    """The batches of several steps, read from the input of this host.

    Attributes:
      steps: for each step the tensors of each replica of this host; empty after the copy to the
        devices.
      end: the error that ended the input before `capacity` steps, or None.
      sizes: the largest sizes of the dimensions in `ReplicaStep.unknown_sizes`.
      on_devices: the batches on the devices; empty before the copy.
    """

    capacity: int = 0
    steps: list[Any] = field(default_factory=list)
    end: Exception | None = None
    count: int = 0
    sizes: list[int] = field(default_factory=list)
    on_devices: list[Any] = field(default_factory=list)
    first: int = 0


@dataclass
class StepStream:
    """What is on its way between the threads of one session.

    Attributes:
      results: for the outfeed thread, the tensors that all replicas have sent in a step: those of
        the first replica, then those of the second, and so on.
    """

    batches: StepQueue = field(default_factory=lambda: StepQueue(1))
    results: StepQueue = field(default_factory=lambda: StepQueue(2))
    current: Batches = field(default_factory=Batches)
    num_ahead: int = 0


class _AfterStep:
    """The ops that the host runs after each step, for each replica of this host.

    Args:
      program: the program of the steps, with the ops as `ReplicaStep.host_part`.
    """

    def __init__(self, program: StepProgram) -> None:
        step = program.step
        assert step.host_part is not None
        self._replicas, self._num_sent = program.local_replicas, step.num_sent
        specs = step.results[step.num_sent :]
        self._tensors = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
        self._run = step.host_part.build(self._tensors)

    def run(self, session: Any, dispatch: Dispatch) -> None:
        """Run the ops for all steps of a dispatch, in the order of the steps."""
        arrays = [np.asarray(result) for result in dispatch.results[self._num_sent :]]
        for number in range(dispatch.count):
            for replica in self._replicas:
                values = [array[replica, number] for array in arrays]
                session.run(self._run, dict(zip(self._tensors, values, strict=True)))


_GLOBAL_STEP = tf.compat.v1.GraphKeys.GLOBAL_STEP


class DeviceLoop:
    """Runs a loop of training, evaluation or prediction steps on the devices of all replicas.

    Attributes:
      done: int32 [], a placeholder in the session's graph that stands for the end of the loop. Call
        `run` before a `session.run` whose fetches depend on this placeholder.
      lock: the lock to hold while steps are dispatched or variables are copied.

    Args:
      checked: index of a variable whose values must stay finite → name of the variable.
    """

    def __init__(
        self,
        program: StepProgram,
        batch: list[list[Any]],
        received: list[Any],
        checked: dict[int, str],
        seed: int,
        *,
        reads_ahead: bool,
    ) -> None:
        self._program, self._seed, self._hosts = program, seed, current_group()
        self.batch, self.received, self._reads_ahead = batch, received, reads_ahead
        self._checked = list(checked.values())
        graph = tf.compat.v1.get_default_graph()
        self._iterations = graph.as_graph_element(program.step.iterations)
        self.done = tf.compat.v1.placeholder_with_default(0, [], name="steps_done")
        self.feed, self.end_feed, self.end_results = (tf.no_op() for _ in range(3))
        self.variables = ResidentVariables(program)
        self._after_step = _AfterStep(program) if program.step.host_part is not None else None
        self.lock = threading.Lock()
        self._num_steps = 0

    def read_input(
        self, read_batch: Callable[[], Any], stream: StepStream, iterations: int
    ) -> None:
        """Read the batches of a loop, and in a training some more; called in the infeed thread."""
        stream.num_ahead -= iterations
        most = self._program.max_steps
        while stream.num_ahead < (1 if self._reads_ahead else 0):
            count = min(-stream.num_ahead if stream.num_ahead < 0 else iterations, most)
            batches = Batches(count)
            while len(batches.steps) < count and not stream.batches.is_ended:
                try:
                    batches.steps.append(read_batch())
                except Exception as error:
                    # The main thread raises the error if it needs the batch.
                    batches.end = error
                    break
            batches.count = len(batches.steps)
            batches.sizes = self._program.find_sizes(batches.steps)
            if self._hosts.size == 1:
                self._copy_to_devices(batches, batches.sizes)
            stream.num_ahead += count
            stream.batches.put(batches)
            if batches.end is not None:
                return

    def _copy_to_devices(self, batches: Batches, sizes: list[int]) -> None:
        batches.on_devices = self._program.put_batches(batches.steps, batches.capacity, sizes)
        batches.steps = []

    def run(self, session: Any, stream: StepStream, feeds: dict[Any, Any]) -> None:
        """Run the loop once.

        Raises:
          tf.errors.OutOfRangeError: the input ended before the last step of the loop. The loop has
            run a step for each batch that was left.
          NanError: a trainable variable is NaN or infinite after the loop.
        """
        count = self._agree_on_count(int(feeds.get(self._iterations, 1)))
        with self.lock:
            copied = self.variables.copy_to_devices(session)
        # Number the steps from the global step on. A step's number is a part of the seed of its
        # random ops. So training that resumes from a checkpoint does not repeat random numbers.
        self._num_steps = int(copied.get(_GLOBAL_STEP, self._num_steps))
        done, previous = 0, None
        end: Exception | None = None
        while done < count and end is None:
            batches = stream.current
            if batches.first == batches.count and batches.end is None:
                batches = stream.current = stream.batches.get()
            available, needed = batches.count - batches.first, count - done
            end = batches.end if available < needed else None
            if not isinstance(end, tf.errors.OutOfRangeError | None):
                raise end
            taken, sizes, end = self._agree_on_batches(min(available, needed), batches.sizes, end)
            if taken:
                if batches.steps:
                    self._copy_to_devices(batches, sizes)
                with self.lock, self._hosts.needing_all():
                    dispatch = self._program.dispatch(
                        batches.on_devices,
                        taken,
                        first=batches.first,
                        seed=self._seed,
                        step=self._num_steps,
                        done=done,
                        iterations=count,
                    )
                    self.variables.mark_changed_on_devices(self._program.step.changed_variables)
                batches.first += taken
                self._num_steps += taken
                done += taken
                # Hand on the results of the previous steps while the devices compute the current
                # steps.
                self._put_results(session, stream, previous)
                previous = dispatch
        self._put_results(session, stream, previous)
        if end is not None:
            raise end
        if previous is not None:
            self._check_finite(previous)

    def _agree_on_count(self, count: int) -> int:
        """Check that all hosts are about to run the same number of steps; return this number."""
        counts = self._hosts.gather("a loop of steps", count)
        if len(set(counts)) > 1:
            raise HostsDiffer(
                f"the hosts are to run loops of different lengths: {', '.join(map(str, counts))} "
                f"steps on host 0, 1 and so on. Give all hosts the same iterations_per_loop, steps "
                f"and hooks."
            )
        return count

    def _agree_on_batches(
        self, taken: int, sizes: list[int], end: Exception | None
    ) -> tuple[int, list[int], Exception | None]:
        """Agree with the other hosts on the next steps, which all hosts dispatch together."""
        if self._hosts.size == 1:
            return taken, sizes, end
        hosts = self._hosts.gather("the batches of a dispatch", [taken, end is not None, sizes])
        ended = [host for host, (_, has_ended, _) in enumerate(hosts) if has_ended]
        if ended and end is None:
            end = tf.errors.OutOfRangeError(
                None, None, f"the input of {self._hosts.describe(ended[0])} has ended"
            )
        all_sizes = zip(*(host[2] for host in hosts), strict=True)
        return min(host[0] for host in hosts), [max(sizes) for sizes in all_sizes], end

    def _put_results(self, session: Any, stream: StepStream, dispatch: Dispatch | None) -> None:
        """Hand the tensors that the replicas have sent in some steps to the outfeed thread.

        Before that, run the ops of these steps that the host runs.
        """
        if dispatch is None:
            return
        if self._after_step is not None:
            self._after_step.run(session, dispatch)
        num_sent = self._program.step.num_sent
        if not num_sent:
            return
        is_sent = np.asarray(dispatch.is_sent)[: dispatch.count]
        arrays = [np.asarray(result) for result in dispatch.results[:num_sent]]
        for number in np.flatnonzero(is_sent):
            stream.results.put(
                [array[r, number] for r in range(len(arrays[0])) for array in arrays]
            )

    def _check_finite(self, dispatch: Dispatch) -> None:
        for name, is_finite in zip(self._checked, np.asarray(dispatch.is_finite), strict=True):
            if not is_finite:
                raise nan_errors.nan_variable_error(name)
