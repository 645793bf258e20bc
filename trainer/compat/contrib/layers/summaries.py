"""Summaries of tensors, of collections, of activations."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def summarize_tensor(tensor: Any, tag: str | None = None) -> Any:
    """A scalar's scalar summary, any other tensor's histogram."""
    tag = tag or f"{tensor.op.name}_summary"
    if tensor.shape.rank == 0:
        return v1.summary.scalar(tag, tensor)
    return v1.summary.histogram(tag, tensor)


def summarize_activation(op: Any) -> Any:
    """A histogram of an activation; of a relu, how many are zero as well."""
    name = re.sub(r"[^\w/.-]", "_", op.op.name)
    if op.op.type in ("Relu", "Softplus", "Relu6"):
        zeros = tf.cast(tf.less_equal(op, 0.0), tf.float32)
        v1.summary.scalar(f"{name}/zeros", tf.reduce_mean(zeros))
    return v1.summary.histogram(f"{name}/activation", op)


def summarize_tensors(
    tensors: Iterable[Any], summarizer: Callable[[Any], Any] = summarize_tensor
) -> list[Any]:
    """A summary of each."""
    return [summarizer(each) for each in tensors]


def summarize_collection(
    collection: str,
    name_filter: str | None = None,
    summarizer: Callable[[Any], Any] = summarize_tensor,
) -> list[Any]:
    """A summary of each in a collection whose name matches."""
    found = v1.get_collection(collection)
    chosen = [each for each in found if name_filter is None or re.match(name_filter, each.op.name)]
    return summarize_tensors(chosen, summarizer)


def summarize_activations(
    name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_activation
) -> list[Any]:
    """A summary of each in tf.GraphKeys.ACTIVATIONS."""
    return summarize_collection(v1.GraphKeys.ACTIVATIONS, name_filter, summarizer)
