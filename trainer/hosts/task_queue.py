"""Sends numbers between the processes of a cluster, through queues on their TensorFlow servers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from trainer.config.cluster_hosts import Task

# How long, in seconds, `send` waits for a process that does not answer.
_SEND_SECS = 10.0


def send(task: Task, name: str, number: int) -> None:
    """Put a number into a queue of another process.

    Args:
      task: the task of the other process.
      name: the name of the queue.
      number: the number, an int32.

    Raises:
      tf.errors.OpError: the process does not answer.
    """
    with _task_session(f"grpc://{task.address}", task, _SEND_SECS) as session:
        session.run(tf.raw_ops.QueueEnqueueV2(handle=_queue(task, name), components=[number]))


def receive(target: str, own: Task, name: str) -> Iterator[int]:
    """Yield the numbers that other processes put into a queue of this process.

    The generator waits for the next number without limit.

    Args:
      target: the session target of this process's TensorFlow server.
      own: the task of this process.
      name: the name of the queue.
    """
    with _task_session(target, own) as session:
        (number,) = tf.raw_ops.QueueDequeueV2(handle=_queue(own, name), component_types=[tf.int32])
        while True:
            yield int(session.run(number))


def _queue(task: Task, name: str) -> Any:
    with tf.device(task.device):
        return tf.raw_ops.FIFOQueueV2(component_types=[tf.int32], shapes=[[]], shared_name=name)


@contextmanager
def _task_session(target: str, task: Task, timeout_secs: float = 0.0) -> Iterator[Any]:
    """Return a context with a session that uses only the TensorFlow server of one task.

    The sessions of several processes share the queues on this server, because sessions do not
    isolate their state by default.

    Args:
      target: the session target of the server.
      task: the task to which the server belongs.
      timeout_secs: the longest time of each operation, in seconds; 0 for no limit.
    """
    proto = tf.compat.v1.ConfigProto(
        device_filters=[f"/job:{task.job}/task:{task.index}"],
        operation_timeout_in_ms=int(1000 * timeout_secs),
    )
    with tf.Graph().as_default(), tf.compat.v1.Session(target, config=proto) as session:
        yield session
