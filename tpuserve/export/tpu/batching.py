"""Adds batching to a graph: the op BatchFunction merges the examples of several requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export import large_constants
from tpuserve.tensorflow_internals import ConcreteFunction, func_graph_from_py_func, gen_batch_ops

FUNCTION_NAME = "batched_computation"


@dataclass(frozen=True)
class BatchConfig:
    """The settings of a BatchFunction, the op that merges several requests into a batch.

    One row is one example: an element of the first dimension of each input.

    Attributes:
      num_batch_threads: Number of batches that run in parallel.
      max_batch_size: Largest number of rows in a batch; a request with more rows is refused.
      batch_timeout_micros: The longest time that a batch waits for more rows, in microseconds.
      allowed_batch_sizes: Numbers of rows, in increasing order; the last one is max_batch_size.
      max_enqueued_batches: Largest number of waiting batches; further requests are refused.

    Raises:
      InvalidSetting: A number is too small, or the sizes are not increasing.
      InvalidType: An attribute has the wrong type.
    """

    num_batch_threads: int
    max_batch_size: int
    batch_timeout_micros: int
    allowed_batch_sizes: Sequence[int] | None = None
    max_enqueued_batches: int = 100

    def __post_init__(self) -> None:
        validation.check_integer("num_batch_threads", self.num_batch_threads, least=1)
        validation.check_integer("max_batch_size", self.max_batch_size, least=1)
        validation.check_integer("batch_timeout_micros", self.batch_timeout_micros, least=0)
        validation.check_integer("max_enqueued_batches", self.max_enqueued_batches, least=1)
        validation.check_sizes("allowed_batch_sizes", self.allowed_batch_sizes, optional=True)
        sizes = tuple(self.allowed_batch_sizes or ())
        object.__setattr__(self, "allowed_batch_sizes", sizes)
        if list(sizes) != sorted(set(sizes)):
            raise InvalidSetting(
                f"allowed_batch_sizes is {list(sizes)}. Give each size once, in increasing order: "
                f"{sorted(set(sizes))}."
            )
        # TensorFlow's BatchFunction requires that the last allowed size is the largest batch size:
        # see tensorflow/core/kernels/batch_kernels.cc.
        if sizes and sizes[-1] != self.max_batch_size:
            raise InvalidSetting(
                f"allowed_batch_sizes ends with {sizes[-1]}, and max_batch_size is "
                f"{self.max_batch_size}. Let the last size be max_batch_size."
            )


def call_batched(function: Callable[[Any], Any], inputs: Any, config: BatchConfig) -> Any:
    """Call a function through a BatchFunction, which runs it once for several requests.

    The function is traced with inputs whose first dimension is None. Variables that it creates
    belong to the default graph.

    Args:
      inputs: A nest of dense tensors of the default graph, [rows, ...]. Elements that are not
        tensors, such as None, are passed to the function unchanged.

    Returns:
      A nest like the function's result, with the static shapes that are known.
    """
    flat = tf.nest.flatten(inputs)
    tensors = [member for member in flat if tf.is_tensor(member)]
    rows = _static_rows(tensors)
    results_nest: list[Any] = []

    def trace_batch(*batch: Any) -> list[Any]:
        large_constants.lift_constants()
        batch_tensors = iter(batch)
        members = [next(batch_tensors) if tf.is_tensor(member) else member for member in flat]
        results_nest.append(function(tf.nest.pack_sequence_as(inputs, members)))
        return list(map(_check_output, tf.nest.flatten(results_nest[0])))

    signature = [
        tf.TensorSpec(_replace_rows(None, tensor.shape), tensor.dtype, f"batch_{number}")
        for number, tensor in enumerate(tensors)
    ]
    graph = func_graph_from_py_func(FUNCTION_NAME, trace_batch, (), {}, signature=signature)
    concrete = ConcreteFunction.from_func_graph(graph, None, {})
    concrete.add_to_graph(tf.compat.v1.get_default_graph())
    with tf.compat.v1.name_scope("batch") as name:
        results = gen_batch_ops.batch_function(
            in_tensors=tensors,
            captured_tensors=list(concrete.captured_inputs),
            f=concrete,
            num_batch_threads=config.num_batch_threads,
            max_batch_size=config.max_batch_size,
            batch_timeout_micros=config.batch_timeout_micros,
            allowed_batch_sizes=list(config.allowed_batch_sizes or ()),
            max_enqueued_batches=config.max_enqueued_batches,
            # BatchFunctions with the same shared name share one queue, so the name must be unique.
            shared_name=name,
            enable_large_batch_splitting=True,
            Tout=[output.dtype for output in concrete.outputs],
        )
    for result, output in zip(results, concrete.outputs, strict=True):
        result.set_shape(_replace_rows(rows, output.shape))
    return tf.nest.pack_sequence_as(results_nest[0], results)


def _static_rows(tensors: Sequence[Any]) -> int | None:
    if not tensors:
        raise ExportError("a batched computation has no input. Give it tensors, [rows, ...].")
    for tensor in tensors:
        if not isinstance(tensor, tf.Tensor):
            name = tensor.name if hasattr(tensor, "name") else repr(tensor)
            raise ExportError(
                f"input {name} of a batched computation is a {type(tensor).__name__}, and a "
                f"BatchFunction takes dense tensors only. Convert it to a dense tensor in front of "
                f"the computation, or leave the batch config out."
            )
        if tensor.shape.rank == 0:
            raise ExportError(
                f"input {tensor.name!r} of a batched computation is a scalar, which has no rows to "
                f"batch. Let the computation read it from outside, or add a first dimension."
            )
    sizes = {tensor.shape.as_list()[0] for tensor in tensors if tensor.shape.rank} - {None}
    if len(sizes) > 1:
        raise ExportError(
            f"inputs of a batched computation have {' and '.join(map(str, sorted(sizes)))} rows. "
            f"Give all inputs the same number of rows."
        )
    return next(iter(sizes), None)


def _check_output(output: Any) -> Any:
    """Return an output of a batched function after checking that it is a tensor and no scalar."""
    if not tf.is_tensor(output):
        raise ExportError(
            f"a batched computation returned {output!r}, which is not a tensor. Return tensors, in "
            f"any nest of dicts, lists and tuples."
        )
    if output.shape.rank == 0:
        raise ExportError(
            f"output {output.name!r} of a batched computation is a scalar, and results are split "
            f"by rows. Return tensors, [rows, ...]."
        )
    return output


def _replace_rows(rows: int | None, shape: Any) -> Any:
    """Return a TensorShape with `rows` as its first dimension, unless its rank is unknown."""
    return shape if shape.rank is None else tf.TensorShape([rows]).concatenate(shape[1:])
