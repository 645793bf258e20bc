"""Where runs with a deadline run: in a pool of threads that only they use.

In the runtime's own pool, which has a thread for each core, a few slow ones would keep all others
waiting, and a quick one would miss its deadline without having begun.
"""

import os
from typing import Any

from tensorflow.core.protobuf import config_pb2

# All models share it. As many as requests are answered at once by default, over both faces.
_NAME = "tpuserve_watched"
_THREADS = 8 * (os.cpu_count() or 1)


def add_deadline_pool(config: Any) -> None:
    """Gives the sessions of a ConfigProto that pool, after those that it has."""
    pools = config.session_inter_op_thread_pool
    if not pools:
        # The first is for all other runs, as it was.
        pools.add(global_name="tpuserve_default")
    pools.add(num_threads=_THREADS, global_name=_NAME)


def run_options(session: Any, time_ms: float) -> bytes:
    """The serialised RunOptions of a run that ends after so long.

    Args:
      session: a version 1 session; the runtime's pool is used where it has no other.
    """
    made = config_pb2.RunOptions(timeout_in_ms=max(1, int(time_ms)))
    pools = session._config.session_inter_op_thread_pool if session._config else ()
    for index, pool in enumerate(pools):
        if pool.global_name == _NAME:
            made.inter_op_thread_pool = index
    return bytes(made.SerializeToString())
