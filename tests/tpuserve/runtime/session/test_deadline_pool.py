"""Slow runs with a deadline do not delay short runs."""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import DeadlineExceeded
from tpuserve.runtime.session import run_canceller
from tpuserve.runtime.session.signature_runner import SignatureRunner
from tpuserve.saved_model.signature import Signature, TensorSpec

v1 = tf.compat.v1

SIGNATURE = Signature(
    {"n": TensorSpec("n:0", "int32", ())}, {"counted": TensorSpec("counted:0", "int32", ())}
)


@pytest.fixture
def session() -> Iterator[Any]:
    """Yield a session whose graph counts to n in a loop, or until the op "stop" has run."""
    config = v1.ConfigProto()
    run_canceller.add_deadline_pool(config)
    with tf.Graph().as_default() as graph:
        n = v1.placeholder(tf.int32, [], name="n")
        is_over = v1.get_variable("is_over", initializer=False, use_resource=True)
        tf.group(is_over.assign(True), name="stop")
        (counted,) = tf.while_loop(lambda i: (i < n) & ~is_over.read_value(), lambda i: i + 1, [0])
        tf.identity(counted, name="counted")
        initializer = is_over.initializer
    with v1.Session(graph=graph, config=config) as session:
        session.run(initializer)
        yield session


def count(session: Any, n: int, milliseconds: float) -> Any:
    run = SignatureRunner(session, SIGNATURE).run
    return run({"n": np.array(n, np.int32)}, None, milliseconds)["counted"]


def test_short_run_meets_its_deadline_beside_more_slow_runs_than_cores(session: Any) -> None:
    ends: list[int] = []

    def be_slow() -> None:
        ends.append(int(count(session, 2**30, 120_000)))

    slow = [threading.Thread(target=be_slow) for _ in range((os.cpu_count() or 1) + 1)]
    before = others_seconds()
    for thread in slow:
        thread.start()
    # After 0.3 seconds of processor time, the slow runs occupy the processor cores.
    while others_seconds() < before + 0.3:
        time.sleep(0.01)
        assert not ends
    assert count(session, 3, 60_000) == 3
    assert all(thread.is_alive() for thread in slow)
    session.run("stop")
    for thread in slow:
        thread.join()
    assert len(ends) == len(slow)
    assert min(ends) > 3


def others_seconds() -> float:
    """Return the processor time, in seconds, of all threads except this thread."""
    return time.process_time() - time.thread_time()


def test_slow_run_in_the_pool_is_stopped_at_its_deadline(session: Any) -> None:
    with pytest.raises(DeadlineExceeded):
        count(session, 2**30, 20)


def test_pools_of_the_session_options_are_kept() -> None:
    config = v1.ConfigProto()
    config.session_inter_op_thread_pool.add(num_threads=3, global_name="mine")
    run_canceller.add_deadline_pool(config)
    names = [pool.global_name for pool in config.session_inter_op_thread_pool]
    assert names == ["mine", "tpuserve_deadline"]
