"""Traces a computation into a function for the TPU, and calls it by TPUPartitionedCall."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.export import large_constants
from tpuserve.tensorflow_internals import (
    ConcreteFunction,
    func_graph_from_py_func,
    tpu_function,
    tpu_functional,
    tpu_ops,
)

FUNCTION_NAME = "tpu_computation"


def on_tpu(computation: Callable[[Any], Any], inputs: Any) -> Any:
    """Build, in the default graph, a computation that runs entirely on a TPU.

    The computation is traced by `tpu.rewrite` into a function, which a TPUPartitionedCall calls.
    Inputs that the computation uses are captured and sent to the TPU. Inputs that it only returns
    unchanged, such as a string key, stay on the host.

    Args:
      computation: Takes a nest like `inputs` and returns a nest of tensors.
      inputs: Any nest of tensors of the default graph; sparse tensors and None are allowed.

    Returns:
      The nest that the computation returned, as tensors of the default graph. An input that the
      computation returned unchanged is the same tensor as in `inputs`.

    Raises:
      ExportError: The computation returned something that is not a tensor, or this call is inside
        of another TPU computation.
    """
    input_ids = {id(tensor) for tensor in tf.nest.flatten(inputs, expand_composites=True)}
    results_nest: list[Any] = []

    def flat_computation() -> list[Any]:
        results_nest.append(computation(inputs))
        flat = [_check_tensor(result) for result in tf.nest.flatten(results_nest[0])]
        return [result for result in flat if id(result) not in input_ids]

    def rewrite() -> Any:
        results = tf.compat.v1.tpu.rewrite(flat_computation)
        # For a computation without results, tpu.rewrite returns an operation. It is not a result,
        # so return an empty list.
        return [] if isinstance(results, tf.Operation) else results

    computed = iter(partitioned_call(rewrite))
    flat = [
        result if id(result) in input_ids else next(computed)
        for result in tf.nest.flatten(results_nest[0])
    ]
    return tf.nest.pack_sequence_as(results_nest[0], flat)


def partitioned_call(build: Callable[[], Any]) -> list[Any]:
    """Trace a TPU computation into a function, and call it by a TPUPartitionedCall.

    A TPUOrdinalSelector chooses the TPU core that runs the call.

    Variables that the computation creates belong to the default graph, and the function captures
    them.

    Returns:
      The tensors of the nest that `build` returned, flattened, as tensors of the default graph with
      static shapes.
    """
    check_not_nested()
    graph = tf.compat.v1.get_default_graph()

    def build_with_few_constants() -> Any:
        large_constants.lift_constants()
        return build()

    function_graph = func_graph_from_py_func(FUNCTION_NAME, build_with_few_constants, (), {})
    if not function_graph.outputs:
        return []
    function = ConcreteFunction.from_func_graph(function_graph, None, {})
    function.add_to_graph(graph)
    results = tpu_functional.TPUPartitionedCall(
        args=list(function.captured_inputs),
        device_ordinal=tpu_ops.tpu_ordinal_selector(),
        Tout=[output.dtype for output in function.outputs],
        f=function,
    )
    for result, output in zip(results, function.outputs, strict=True):
        result.set_shape(output.shape)
    return list(results)


def check_not_nested() -> None:
    """Check that no TPU computation is being built, because TPU computations cannot be nested."""
    if tpu_function.get_tpu_context().number_of_shards is not None:
        raise ExportError(
            "a TPU computation cannot be placed inside of another: the whole model is on the TPU "
            "already. Either do not place parts of it, or let the exported function take use_tpu "
            "and place them only if use_tpu is True; for a model_fn, export with "
            "export_saved_model_api_version=ExportSavedModelApiVersion.V2."
        )


def _check_tensor(value: Any) -> Any:
    if not tf.is_tensor(value):
        raise ExportError(
            f"a TPU computation returned {value!r}, which is not a tensor. Return tensors, in any "
            f"nest of dicts, lists and tuples."
        )
    return value
