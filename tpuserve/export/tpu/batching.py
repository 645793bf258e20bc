"""Batching inside of the graph: rows of several requests, run as one batch of an allowed size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.tensorflow_internals import ConcreteFunction, func_graph_from_py_func, gen_batch_ops

FUNCTION_NAME = "batched_computation"


@dataclass(frozen=True)
class BatchConfig:
    """How a BatchFunction gathers rows.

    Attributes:
      num_batch_threads: how many batches run at a time.
      max_batch_size: rows of a batch at most, and so of a request: a larger one is refused.
      batch_timeout_micros: how long a batch waits for more rows, in microseconds.
      allowed_batch_sizes: in rows, increasing, the last one being max_batch_size; a batch is
        padded to the next of them, so that XLA compiles no other shapes. Empty or None for no
        padding, and so a compilation for each size that comes.
      max_enqueued_batches: batches that wait at most; requests beyond are refused.

    Raises:
      InvalidSetting: a number is too small, or the sizes are out of order.
      InvalidType: a number is none.
    """

    num_batch_threads: int
    max_batch_size: int
    batch_timeout_micros: int
    allowed_batch_sizes: Sequence[int] | None
    max_enqueued_batches: int = 100

    def __post_init__(self) -> None:
        validation.check_integer("num_batch_threads", self.num_batch_threads, least=1)
        validation.check_integer("max_batch_size", self.max_batch_size, least=1)
        validation.check_integer("batch_timeout_micros", self.batch_timeout_micros, least=0)
        validation.check_integer("max_enqueued_batches", self.max_enqueued_batches, least=1)
        sizes = () if self.allowed_batch_sizes is None else self.allowed_batch_sizes
        if isinstance(sizes, str | bytes) or not isinstance(sizes, Sequence):
            raise InvalidType(
                f"allowed_batch_sizes is {sizes!r}. Give a list of whole numbers, or None."
            )
        for each in sizes:
            validation.check_integer("A size of allowed_batch_sizes", each, least=1)
        object.__setattr__(self, "allowed_batch_sizes", tuple(sizes))
        if list(sizes) != sorted(set(sizes)):
            raise InvalidSetting(
                f"allowed_batch_sizes is {list(sizes)}. Give each size once, the least first: "
                f"{sorted(set(sizes))}."
            )
        # Source: tensorflow/core/kernels/batch_kernels.cc.
        if sizes and sizes[-1] != self.max_batch_size:
            raise InvalidSetting(
                f"allowed_batch_sizes ends with {sizes[-1]}, and max_batch_size is "
                f"{self.max_batch_size}. Let the last size be max_batch_size."
            )


def call_batched(function: Callable[[Any], Any], inputs: Any, config: BatchConfig) -> Any:
    """The outputs of a function that runs on the rows of several requests at a time.

    The function is traced with an open first dimension, and called by a BatchFunction. Variables
    that it makes are variables of the default graph; they and what else it reads of that graph
    are captured, and not batched.

    Args:
      function: takes a nest like `inputs`, returns a nest of tensors with one row for each row
        of the inputs.
      inputs: a nest of dense tensors of the default graph, [rows, ...]; what is no tensor, such as
        None, is handed on as it is.
      config: how to gather rows.

    Returns:
      A nest like the function's, with the static shapes that are known.

    Raises:
      ExportError: an input is sparse or ragged, an input or output has no rows, or there is no
        input.
    """
    flat = tf.nest.flatten(inputs)
    tensors = [each for each in flat if tf.is_tensor(each)]
    rows = _rows_of(tensors)
    returned: list[Any] = []

    def traced(*batch: Any) -> list[Any]:
        given = iter(batch)
        filled = [next(given) if tf.is_tensor(each) else each for each in flat]
        returned.append(function(tf.nest.pack_sequence_as(inputs, filled)))
        return list(map(_with_rows, tf.nest.flatten(returned[0])))

    signature = [
        tf.TensorSpec(_with_row_count(None, each.shape), each.dtype, f"batch_{number}")
        for number, each in enumerate(tensors)
    ]
    graph = func_graph_from_py_func(FUNCTION_NAME, traced, (), {}, signature=signature)
    called = ConcreteFunction.from_func_graph(graph, None, {})
    called.add_to_graph(tf.compat.v1.get_default_graph())
    with tf.compat.v1.name_scope("batch") as name:
        results = gen_batch_ops.batch_function(
            in_tensors=tensors,
            captured_tensors=list(called.captured_inputs),
            f=called,
            num_batch_threads=config.num_batch_threads,
            max_batch_size=config.max_batch_size,
            batch_timeout_micros=config.batch_timeout_micros,
            allowed_batch_sizes=list(config.allowed_batch_sizes or ()),
            max_enqueued_batches=config.max_enqueued_batches,
            # Ops of one shared name share their queue.
            shared_name=name,
            enable_large_batch_splitting=True,
            Tout=[each.dtype for each in called.outputs],
        )
    for result, inside in zip(results, called.outputs, strict=True):
        result.set_shape(_with_row_count(rows, inside.shape))
    return tf.nest.pack_sequence_as(returned[0], results)


def _rows_of(tensors: Sequence[Any]) -> int | None:
    """How many rows the inputs have, where one of them knows."""
    if not tensors:
        raise ExportError("a batched computation has no input. Give it tensors, [rows, ...].")
    for each in tensors:
        if not isinstance(each, tf.Tensor):
            raise ExportError(
                f"input {each.name if hasattr(each, 'name') else each!r} of a batched computation "
                f"is a {type(each).__name__}, and a BatchFunction takes dense tensors alone. Make "
                f"it dense in front of the computation, or leave the batch config out."
            )
        if each.shape.rank == 0:
            raise ExportError(
                f"input {each.name!r} of a batched computation is a scalar, which has no rows to "
                f"batch. Let the computation read it from outside, or give it a first dimension."
            )
    rows = {each.shape.as_list()[0] for each in tensors if each.shape.rank} - {None}
    if len(rows) > 1:
        raise ExportError(
            f"inputs of a batched computation have {' and '.join(map(str, sorted(rows)))} rows. "
            f"Give all of them the same."
        )
    return next(iter(rows), None)


def _with_rows(output: Any) -> Any:
    if not tf.is_tensor(output):
        raise ExportError(
            f"a batched computation returned {output!r}, which is no tensor. Return tensors, in "
            f"any nest of dicts, lists and tuples."
        )
    if output.shape.rank == 0:
        raise ExportError(
            f"output {output.name!r} of a batched computation is a scalar, and its results are "
            f"handed back row by row. Return tensors, [rows, ...]."
        )
    return output


def _with_row_count(rows: int | None, shape: Any) -> Any:
    return shape if shape.rank is None else tf.TensorShape([rows]).concatenate(shape[1:])
