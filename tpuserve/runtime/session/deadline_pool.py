"""Adds an inter-op thread pool for runs with a deadline to TensorFlow's sessions.

TensorFlow's default pool has one thread for each core.
"""

import os
from typing import Any

from tensorflow.core.protobuf import config_pb2

from tpuserve import tensorflow_internals

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
