"""Stops a run of a session before its deadline, while other runs of the session continue.

TensorFlow itself stops a single run only at its deadline. But a run also ends as soon as one of its
ops fails.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tpuserve import tensorflow_internals
from tpuserve.graph.references import node_name
from tpuserve.graph.segments import GraphSegment
from tpuserve.runtime.loaded_model import CancellationToken
from tpuserve.runtime.session import graph_import
from tpuserve.runtime.session.graph_import import GraphHandles

# The name of the thread pool for runs with a deadline. All sessions whose configuration has a pool
# of this name share its threads.
_NAME = "tpuserve_deadline"
THREADS = 8 * (os.cpu_count() or 1)
"""The number of threads of the pool for runs with a deadline."""


def add_deadline_pool(config: Any) -> None:
    """Add the thread pool for runs with a deadline to a session configuration."""
    pools = config.session_inter_op_thread_pool
    if not pools:
        # Put a default pool first: runs without RunOptions use the first pool of the list, and must
        # not use the pool for runs with a deadline.
        pools.add(global_name="tpuserve_default")
    pools.add(num_threads=THREADS, global_name=_NAME)


def run_options(session: Any, timeout_ms: float | None) -> bytes:
    """Return serialised RunOptions for a run in the thread pool for runs with a deadline.

    Args:
      session: a tf.compat.v1.Session. If its configuration lacks the pool that `add_deadline_pool`
        adds, the run uses the session's first inter-op pool.
      timeout_ms: the time limit of the run in milliseconds, raised to 1 if it is smaller; None for
        no limit.
    """
    options = config_pb2.RunOptions()
    if timeout_ms is not None:
        options.timeout_in_ms = max(1, int(timeout_ms))
    config = tensorflow_internals.get_session_config(session)
    pools = config.session_inter_op_thread_pool if config else ()
    for index, pool in enumerate(pools):
        if pool.global_name == _NAME:
            options.inter_op_thread_pool = index
    return bytes(options.SerializeToString())


_SCOPE = "tpuserve_cancellation"
# The names of the ops that `add_cancellation_ops` adds. _SLOT and _COUNT are placeholders: the
# number of a run's queue, and how many booleans to enqueue or dequeue. _WATCH is the op that fails
# when the run is cancelled.
_SLOT, _COUNT, _WATCH = f"{_SCOPE}/slot", f"{_SCOPE}/count", f"{_SCOPE}/watch"
_CANCEL, _SIZE, _DRAIN = f"{_SCOPE}/cancel", f"{_SCOPE}/size", f"{_SCOPE}/drain"
# The number of queues in the graph. Each run that can be cancelled before its deadline uses one
# queue alone, so this is also the maximum number of such simultaneous runs.
_SLOTS = min(64, THREADS)

RunSession = Callable[[Mapping[Any, Any], Sequence[Any]], Any]
"""A function that runs a session and returns the results."""


def add_cancellation_ops(graph: Any, tensors: Iterable[str], handles: GraphHandles) -> None:
    """Add to a graph the ops by which a `RunCanceller` can cancel runs.

    Args:
      tensors: the names of the tensors that cancellable runs fetch, such as "y:0".
    """
    sources = {_done_op(tensor): node_name(tensor) for tensor in tensors}
    definition = _build_graph_def(sources)
    for node in definition.node:
        if node.name in sources:
            node.input.append(f"^{sources[node.name]}")
    retained = (_SLOT, _COUNT, _WATCH, *sources)
    segment = GraphSegment(
        definition.SerializeToString(), (), tuple(sorted(set(sources.values()))), retained
    )
    graph_import.import_segment(graph, segment, handles)


class RunCanceller:
    """Cancels runs of a session whose graph has the ops of `add_cancellation_ops`; thread-safe."""

    def __init__(self, session: Any, handles: GraphHandles) -> None:
        self._handles = handles
        self._free_slots = deque(range(_SLOTS))
        self._cancel = _make_inline_callable(session, [_SLOT, _COUNT], [], [_CANCEL])
        self._size = _make_inline_callable(session, [_SLOT], [f"{_SIZE}:0"], [])
        self._drain = _make_inline_callable(session, [_SLOT, _COUNT], [f"{_DRAIN}:0"], [])

    def run(
        self,
        run_session: RunSession,
        tensors: Sequence[str],
        cancellation: CancellationToken | None,
    ) -> Any:
        """Run the session, and stop the run when it is cancelled.

        If too many cancellable runs are active, this run cannot be cancelled.
        """
        try:
            slot = self._free_slots.popleft()
        except IndexError:
            return run_session({}, [])
        try:
            return self._run_in_slot(run_session, tensors, cancellation, np.int32(slot))
        finally:
            self._free_slots.append(slot)

    def _run_in_slot(
        self,
        run_session: RunSession,
        tensors: Sequence[str],
        cancellation: CancellationToken | None,
        slot: np.int32,
    ) -> Any:
        count = np.int32(len(tensors))
        handles = self._handles
        feeds = {handles.tensor(_SLOT): slot, handles.tensor(_COUNT): count}
        targets = [handles.operation(name) for name in (_WATCH, *map(_done_op, tensors))]
        lock = threading.Lock()
        is_over = has_succeeded = is_cancelled = False

        def cancel() -> None:
            nonlocal is_cancelled
            with lock:
                if not is_over:
                    is_cancelled = True
                    self._cancel(slot, count)

        if cancellation is not None:
            cancellation.add_callback(cancel)
        try:
            results = run_session(feeds, targets)
            has_succeeded = True
        except tf.errors.InvalidArgumentError:
            if cancellation is not None:
                cancellation.raise_if_cancelled()
            raise
        finally:
            if cancellation is not None:
                cancellation.remove_callback(cancel)
            with lock:
                is_over = True
            # A cancellation may have filled the queue just after the run had succeeded: empty it.
            if is_cancelled or not has_succeeded:
                self._empty_queue(slot)
        return results

    def _empty_queue(self, slot: np.int32) -> None:
        """Empty the queue of a cancelled or failed run, so that another run can use the queue."""
        (size,) = self._size(slot)
        if size:
            self._drain(slot, size)


def _build_graph_def(done_ops: Iterable[str]) -> Any:
    ops = tf.raw_ops
    with tf.Graph().as_default() as graph, tf.device("/device:CPU:0"):
        queues = [
            ops.FIFOQueueV2(
                component_types=[tf.bool],
                shapes=[[]],
                shared_name=f"{_SCOPE}_{slot}",
                name=f"{_SCOPE}/queue_{slot}",
            )
            for slot in range(_SLOTS)
        ]
        slot = tf.compat.v1.placeholder(tf.int32, [], name=_SLOT)
        count = tf.compat.v1.placeholder(tf.int32, [], name=_COUNT)
        with tf.name_scope(f"{_SCOPE}/"):
            queue = ops.GatherV2(params=ops.Pack(values=queues), indices=slot, axis=0)
            are_done = ops.QueueDequeueManyV2(handle=queue, n=count, component_types=[tf.bool])[0]
            ops.Assert(condition=tf.reduce_all(are_done), data=["cancelled"], name=f"{_WATCH}/")
            ops.QueueEnqueueManyV2(
                handle=queue, components=[tf.fill([count], False)], name=f"{_CANCEL}/"
            )
            ops.QueueSizeV2(handle=queue, name=f"{_SIZE}/")
            ops.QueueDequeueManyV2(
                handle=queue, n=count, component_types=[tf.bool], name=f"{_DRAIN}/"
            )
            for name in done_ops:
                ops.QueueEnqueueV2(handle=queue, components=[True], name=f"{name}/")
    return graph.as_graph_def()


def _done_op(tensor: str) -> str:
    """Return the name of the op that reports, through a queue, that a tensor has been computed."""
    return f"{_SCOPE}/done/{tensor.replace(':', '_')}"


def _make_inline_callable(
    session: Any, feeds: Sequence[str], fetches: Sequence[str], targets: Sequence[str]
) -> Any:
    options = config_pb2.CallableOptions(
        feed=[f"{name}:0" for name in feeds], fetch=fetches, target=targets
    )
    options.run_options.inter_op_thread_pool = -1
    return tensorflow_internals.make_session_callable(session, options)
