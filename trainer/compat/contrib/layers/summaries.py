"""Functions that add summaries of tensors, collections and activations to the graph."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def summarize_tensor(tensor: Any, tag: str | None = None) -> Any:
    """Add a summary of a tensor to the graph, and return the summary.

    The summary is a scalar summary for a scalar, and a histogram for other tensors.

    Args:
      tag: name of the summary; by default the name of the tensor's op, followed by "_summary".
    """
    tag = tag or f"{tensor.op.name}_summary"
    if tensor.shape.rank == 0:
        return v1.summary.scalar(tag, tensor)
    return v1.summary.histogram(tag, tensor)


def summarize_activation(op: Any) -> Any:
    """Add a histogram of a layer's output to the graph, and return the histogram.

    If the output comes from a ReLU, ReLU6 or softplus, also add a scalar summary: the share of its
    elements that are 0 or less.
    """
    name = re.sub(r"[^\w/.-]", "_", op.op.name)
    if op.op.type in ("Relu", "Softplus", "Relu6"):
        zeros = tf.cast(tf.less_equal(op, 0.0), tf.float32)
        v1.summary.scalar(f"{name}/zeros", tf.reduce_mean(zeros))
    return v1.summary.histogram(f"{name}/activation", op)


def summarize_tensors(
    tensors: Iterable[Any], summarizer: Callable[[Any], Any] = summarize_tensor
) -> list[Any]:
    """Add a summary of each tensor by calling `summarizer`, and return the summaries."""
    return [summarizer(tensor) for tensor in tensors]


def summarize_collection(
    collection: str,
    name_filter: str | None = None,
    summarizer: Callable[[Any], Any] = summarize_tensor,
) -> list[Any]:
    """Add a summary of each tensor in a collection, and return the summaries.

    Args:
      name_filter: regular expression that matches the beginning of the op names of the tensors to
        summarize; None for all tensors.
    """
    tensors = [
        tensor
        for tensor in v1.get_collection(collection)
        if name_filter is None or re.match(name_filter, tensor.op.name)
    ]
    return summarize_tensors(tensors, summarizer)


def summarize_activations(
    name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_activation
) -> list[Any]:
    """Add a summary of each tensor in tf.GraphKeys.ACTIVATIONS, and return the summaries.

    Args:
      name_filter: regular expression that matches the beginning of the op names of the tensors to
        summarize; None for all tensors.
    """
    return summarize_collection(v1.GraphKeys.ACTIVATIONS, name_filter, summarizer)
