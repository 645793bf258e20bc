"""A computation on the TPU: traced into a function, called through TPUPartitionedCall."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.tensorflow_internals import (
    ConcreteFunction,
    func_graph_from_py_func,
    tpu_function,
    tpu_functional,
    tpu_ops,
)

FUNCTION_NAME = "tpu_computation"


def on_tpu(computation: Callable[[Any], Any], inputs: Any) -> Any:
    """The outputs of a computation that runs on a TPU as a whole, in the default graph.

    The computation is traced into a function under `tpu.rewrite`; see `partitioned_call` for the
    call of it. What the computation reads of the inputs is captured, and so goes to the TPU; what
    it leaves alone does not, such as a string that is handed on as a key.

    Args:
      computation: takes a nest like `inputs`, returns a nest of tensors.
      inputs: any nest of the default graph, sparse tensors and None included.

    Returns:
      The nest that the computation returned, as tensors of the default graph. An input that it
      returned as it is comes back untouched.

    Raises:
      ExportError: the computation returned something that is no tensor, or it is built inside of
        another TPU computation.
    """
    untouched = {id(each) for each in tf.nest.flatten(inputs, expand_composites=True)}
    returned: list[Any] = []

    def flat_computation() -> list[Any]:
        returned.append(computation(inputs))
        flat = [_tensor(each) for each in tf.nest.flatten(returned[0])]
        return [each for each in flat if id(each) not in untouched]

    def rewritten() -> Any:
        results = tf.compat.v1.tpu.rewrite(flat_computation)
        # Of a computation without results it gives the op alone.
        return [] if isinstance(results, tf.Operation) else results

    computed = iter(partitioned_call(rewritten))
    flat = [
        each if id(each) in untouched else next(computed) for each in tf.nest.flatten(returned[0])
    ]
    return tf.nest.pack_sequence_as(returned[0], flat)


def partitioned_call(build: Callable[[], Any]) -> list[Any]:
    """The outputs of a function that a TPU core runs, the core that TPUOrdinalSelector picks.

    Variables are created in the default graph and captured, so that they keep the names they
    have without a TPU.

    Args:
      build: takes nothing, places its computation by `tpu.rewrite`, returns a nest of tensors.

    Returns:
      The tensors of that nest, flat, as tensors of the default graph with their static shapes.

    Raises:
      ExportError: it is built inside of a TPU computation.
    """
    check_not_nested()
    graph = tf.compat.v1.get_default_graph()
    function_graph = func_graph_from_py_func(FUNCTION_NAME, build, (), {})
    if not function_graph.outputs:
        return []
    function = ConcreteFunction.from_func_graph(function_graph, None, {})
    function.add_to_graph(graph)
    results = tpu_functional.TPUPartitionedCall(
        args=list(function.captured_inputs),
        device_ordinal=tpu_ops.tpu_ordinal_selector(),
        Tout=[each.dtype for each in function.outputs],
        f=function,
    )
    for result, traced in zip(results, function.outputs, strict=True):
        result.set_shape(traced.shape)
    return list(results)


def check_not_nested() -> None:
    """Refuses to build a TPU computation inside of another.

    Raises:
      ExportError: one is being built.
    """
    if tpu_function.get_tpu_context().number_of_shards is not None:
        raise ExportError(
            "a TPU computation cannot be placed inside of another: the whole model is on the TPU "
            "already. To place parts of it, let the exported function take use_tpu, or export a "
            "model_fn with export_saved_model_api_version=ExportSavedModelApiVersion.V2, and do so "
            "where use_tpu is True; else leave the placing out."
        )


def _tensor(value: Any) -> Any:
    if not tf.is_tensor(value):
        raise ExportError(
            f"a TPU computation returned {value!r}, which is no tensor. Return tensors, in any "
            f"nest of dicts, lists and tuples."
        )
    return value
