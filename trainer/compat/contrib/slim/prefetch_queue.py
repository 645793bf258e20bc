"""tf.contrib.slim.prefetch_queue: a queue that threads fill with batches ahead of the training."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.compat import contrib_missing_names

__all__ = ["prefetch_queue"]

v1 = tf.compat.v1


def prefetch_queue(
    tensors: Any,
    capacity: int = 8,
    num_threads: int = 1,
    dynamic_pad: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Return a queue that threads fill by evaluating tensors, such as the tensors of a batch.

    Args:
      tensors: a list of tensors, or a dict of name → tensor. The queue's method dequeue() returns
        their values in the same form.
      capacity: the largest number of elements in the queue.
    """
    is_dict = isinstance(tensors, Mapping)
    names = sorted(tensors) if is_dict else None
    values = [tf.convert_to_tensor(tensors[name]) for name in names] if names else tensors
    values = [tf.convert_to_tensor(value) for value in values]
    with v1.name_scope(name, "prefetch_queue"):
        kind = tf.queue.PaddingFIFOQueue if dynamic_pad else tf.queue.FIFOQueue
        queue = kind(
            capacity=capacity,
            dtypes=[value.dtype for value in values],
            shapes=[value.shape for value in values],
            names=names,
            shared_name=shared_name,
        )
        elements = dict(zip(names, values, strict=True)) if names else values
        enqueue_ops = [queue.enqueue(elements)] * num_threads
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, enqueue_ops))
        return queue


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.prefetch_queue", __all__)
