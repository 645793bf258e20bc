"""Runs several steps in a loop on PJRT devices, with queues in place of infeed and outfeed.

The queues belong to a session on the CPU, as on an emulated TPU. Each core has an infeed queue for
its batches and an outfeed queue for the tensors that it sends to the host. The main thread takes
the batches of several steps from the infeed queues, dispatches these steps to the devices as one
computation, and puts the results into the outfeed queues.

On several hosts, each process takes the batches of its own cores only, but puts the results of all
cores into its outfeed queues. Before each dispatch the hosts agree on the number of steps, because
all hosts take part in the computation.
"""

import threading
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import HostsDiffer
from tpuserve.lowering.rules.infeed_outfeed import CAPACITY, queue_name_prefix
from tpuserve.pjrt.step_program import Dispatch, StepProgram
from trainer.backends.tpu.diagnostics import nan_errors
from trainer.backends.tpu.pjrt.resident_variables import ResidentVariables
from trainer.distribution.topology import BatchTopology
from trainer.hosts.group import current_group

_GLOBAL_STEP = tf.compat.v1.GraphKeys.GLOBAL_STEP


class DeviceLoop:
    """Runs a loop of training, evaluation or prediction steps on the devices of all replicas.

    Attributes:
      done: int32 [], a placeholder in the session's graph that stands for the end of the loop. Call
        `run` before a `session.run` whose fetches depend on this placeholder.
      variables: the copies of the step's variables on the devices and in the session.
      lock: the lock to hold while steps are dispatched or variables are copied.
    """

    def __init__(
        self, program: StepProgram, topology: BatchTopology, checked: dict[int, str], seed: int
    ) -> None:
        """Build the ops that read and write the queues, in the default graph.

        Args:
          program: compiles and runs the steps on the devices.
          topology: determines the core of each replica.
          checked: index of a variable whose values must stay finite → name of the variable.
          seed: the seed of the random numbers of the steps.
        """
        self._program, self._seed, self._hosts = program, seed, current_group()
        self._checked = list(checked.values())
        graph = tf.compat.v1.get_default_graph()
        self._iterations = graph.as_graph_element(program.step.iterations)
        self.done = tf.compat.v1.placeholder_with_default(0, [], name="steps_done")
        self.variables = ResidentVariables(program)
        self.lock = threading.Lock()
        self._num_steps = 0
        step = program.step
        with tf.compat.v1.name_scope("pjrt_loop"):
            types = [feed.dtype for feed in step.feeds]
            self._dequeues = [
                tf.raw_ops.QueueDequeueV2(
                    handle=_make_queue("infeed", topology.ordinal_of(replica), types),
                    component_types=types,
                )
                for replica in topology.local_replicas
            ]
            self._results = [
                [
                    tf.compat.v1.placeholder(result.dtype, [None, *(result.shape or ())])
                    for result in step.results
                ]
                for _ in range(topology.replicas if step.results else 0)
            ]
            types = [result.dtype for result in step.results]
            self._enqueue = tf.group(
                *(
                    tf.raw_ops.QueueEnqueueManyV2(
                        handle=_make_queue("outfeed", topology.ordinal_of(replica), types),
                        components=placeholders,
                    )
                    for replica, placeholders in enumerate(self._results)
                )
            )

    def run(self, session: Any, feeds: dict[Any, Any]) -> None:
        """Run the loop once.

        Args:
          session: the session that has the queues, and copies of the variables.
          feeds: the feed_dict of the `session.run` that needs the loop; it can set the number of
            steps.

        Raises:
          tf.errors.OutOfRangeError: the input ended before the last step of the loop. The loop has
            run a step for each batch that was left.
          HostsDiffer: the hosts are about to run loops of different lengths.
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
            num_steps = min(count - done, self._program.max_steps)
            steps, end = self._take_batches(session, num_steps)
            taken, sizes, end = self._agree_on_batches(len(steps), self._find_sizes(steps), end)
            if taken:
                batches = self._stack_batches(steps[:taken], num_steps, sizes)
                with self.lock, self._hosts.needing_all():
                    dispatch = self._program.dispatch(
                        batches,
                        taken,
                        seed=self._seed,
                        step=self._num_steps,
                        done=done,
                        iterations=count,
                    )
                    self.variables.mark_changed_on_devices(self._program.step.changed_variables)
                self._num_steps += taken
                done += taken
                # Put the results of the previous steps into the outfeed queues while the devices
                # compute the current steps.
                self._put_results(session, previous)
                previous = dispatch
        self._put_results(session, previous)
        if end is not None:
            raise end
        if previous is not None:
            self._check_finite(previous)

    def _take_batches(self, session: Any, count: int) -> tuple[list[Any], Exception | None]:
        """Take the batches of several steps from the queues; take fewer if the input ends.

        Args:
          session: the session that has the queues.
          count: the number of steps.

        Returns:
          (a list with one item per step: the tensors of each replica of this host; the error of the
          queue if the input has ended, else None).
        """
        steps: list[Any] = []
        for _ in range(count):
            try:
                steps.append(session.run(self._dequeues))
            except tf.errors.OutOfRangeError as error:
                return steps, error
        return steps, None

    def _find_sizes(self, steps: list[Any]) -> list[int]:
        """Return the largest size of each dynamic dimension in the batches of several steps.

        The size of a dynamic dimension differs between batches: it is the number of values per
        example of a sparse feature.
        """
        return [
            max((values[index].shape[dimension] for step in steps for values in step), default=1)
            for index, dimension in self._program.step.unknown_sizes
        ]

    def _stack_batches(self, steps: list[Any], count: int, sizes: list[int]) -> list[Any]:
        """Copy the batches of several steps into the arrays that `StepProgram.dispatch` takes.

        Args:
          steps: the batches, as `_take_batches` returns them.
          count: the number of steps to allocate arrays for. It is the same on all hosts, and at
            least the length of `steps`.
          sizes: the sizes to allocate for the dynamic dimensions, the same on all hosts; see
            `_find_sizes`.
        """
        batches = self._program.make_batches(count, sizes)
        for number, step in enumerate(steps):
            for replica, values in enumerate(step):
                for batch, value in zip(batches, values, strict=True):
                    place: Any = (replica, number, *map(slice, value.shape))
                    batch[place] = value
        return batches

    def _agree_on_count(self, count: int) -> int:
        """Check that all hosts are about to run the same number of steps; return this number.

        Args:
          count: the number of steps that this host is about to run.

        Raises:
          HostsDiffer: the numbers of steps differ.
        """
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
        """Agree with the other hosts on the next steps, which all hosts dispatch together.

        Args:
          taken: the number of steps that this host has batches for.
          sizes: the largest sizes of dynamic dimensions in these batches; see `_find_sizes`.
          end: the error with which this host's input has ended, or None.

        Returns:
          (number of steps that every host has batches for; the largest sizes on any host; an
          OutOfRangeError if the input of any host has ended, else None).
        """
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

    def _put_results(self, session: Any, dispatch: Dispatch | None) -> None:
        """Put the tensors that the replicas have sent in some steps into the outfeed queues.

        Args:
          session: the session that has the queues.
          dispatch: the results of the steps, which ran as one computation; None to do nothing.
        """
        if dispatch is None or not self._results:
            return
        is_sent = np.asarray(dispatch.is_sent)[: dispatch.count]
        if not is_sent.any():
            return
        arrays = [
            np.asarray(result)[:, : dispatch.count][:, is_sent] for result in dispatch.results
        ]
        feeds = {
            placeholder: array[replica]
            for replica, placeholders in enumerate(self._results)
            for placeholder, array in zip(placeholders, arrays, strict=True)
        }
        session.run(self._enqueue, feeds)

    def _check_finite(self, dispatch: Dispatch) -> None:
        for name, is_finite in zip(self._checked, np.asarray(dispatch.is_finite), strict=True):
            if not is_finite:
                raise nan_errors.nan_variable_error(name)


def _make_queue(direction: str, core: int, types: list[Any]) -> Any:
    """Build an op that refers to the queue that replaces the infeed or outfeed of a core.

    `tpuserve.lowering` builds queue ops with the same shared name and attributes, in place of the
    host's infeed and outfeed ops. So all these ops refer to one queue.

    Args:
      direction: "infeed" or "outfeed".
      core: the number of the core.
      types: the dtypes of an element of the queue.
    """
    return tf.raw_ops.FIFOQueueV2(
        component_types=types,
        capacity=CAPACITY,
        shared_name=f"{queue_name_prefix(direction)}{core}",
    )
