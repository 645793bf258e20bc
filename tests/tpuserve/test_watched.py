"""Slow runs with a deadline keep no quick one waiting."""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve import watched
from tpuserve.entry_point import EntryPoint
from tpuserve.errors import DeadlineExceeded
from tpuserve.signature import Signature, TensorSpec

pytestmark = pytest.mark.slow

v1 = tf.compat.v1

SIGNATURE = Signature(
    {"n": TensorSpec("n:0", "int32", ())}, {"counted": TensorSpec("counted:0", "int32", ())}
)


@pytest.fixture
def entry_point() -> Iterator[EntryPoint]:
    """n → counted, by a loop of n steps."""
    config = v1.ConfigProto()
    watched.add_pool(config)
    with tf.Graph().as_default() as graph:
        n = v1.placeholder(tf.int32, [], name="n")
        tf.identity(tf.while_loop(lambda i: i < n, lambda i: i + 1, [0]), name="counted")
    with v1.Session(graph=graph, config=config) as session:
        yield EntryPoint(session, SIGNATURE)


def count(entry_point: EntryPoint, n: int, milliseconds: float) -> Any:
    return entry_point.run({"n": np.array(n, np.int32)}, None, milliseconds)["counted"]


def test_quick_run_is_answered_while_more_slow_ones_run_than_there_are_cores(
    entry_point: EntryPoint,
) -> None:
    ends: list[type[Exception]] = []

    def be_slow() -> None:
        try:
            count(entry_point, 2**30, 3000)
        except DeadlineExceeded as error:
            ends.append(type(error))

    slow = [threading.Thread(target=be_slow) for _ in range((os.cpu_count() or 1) + 1)]
    before = time.process_time()
    for each in slow:
        each.start()
    # Once this much is computed they are at it.
    while time.process_time() < before + 0.3:
        assert not ends
    assert count(entry_point, 3, 60_000) == 3
    assert all(each.is_alive() for each in slow)
    for each in slow:
        each.join()
    assert ends == [DeadlineExceeded] * len(slow)


def test_pools_of_the_session_options_stay() -> None:
    config = v1.ConfigProto()
    config.session_inter_op_thread_pool.add(num_threads=3, global_name="mine")
    watched.add_pool(config)
    names = [each.global_name for each in config.session_inter_op_thread_pool]
    assert names == ["mine", "tpuserve_watched"]
