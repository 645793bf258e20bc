"""The whole model on the TPU: what an export of version V1 does to it."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework.func_graph import func_graph_from_py_func
from tensorflow.python.tpu import functional as tpu_functional
from tensorflow.python.tpu.ops import tpu_ops

from tpuserve.errors import ExportError

FUNCTION_NAME = "tpu_computation"


def on_tpu(computation: Callable[[Any], Any], inputs: Any) -> Any:
    """The outputs of a computation that runs on a TPU as a whole, in the default graph.

    The computation is traced into a function under `tpu.rewrite`; the graph calls the function
    through TPUPartitionedCall, on the core that TPUOrdinalSelector picks. What the computation
    reads of the inputs is captured, and so goes to the TPU; what it leaves alone does not, such
    as a string that is handed on as a key. Variables are created in the default graph and
    captured too, so that they keep the names they have without a TPU.

    Args:
      computation: takes a nest like `inputs`, returns a nest of tensors.
      inputs: any nest of the default graph, sparse tensors and None included.

    Returns:
      The nest that the computation returned, as tensors of the default graph. An input that it
      returned as it is comes back untouched.

    Raises:
      ExportError: the computation returned something that is no tensor.
    """
    graph = tf.compat.v1.get_default_graph()
    untouched = {id(each) for each in tf.nest.flatten(inputs, expand_composites=True)}
    returned: list[Any] = []

    def rewritten() -> Any:
        def flat_computation() -> list[Any]:
            returned.append(computation(inputs))
            flat = [_tensor(each) for each in tf.nest.flatten(returned[0])]
            return [each for each in flat if id(each) not in untouched]

        return tf.compat.v1.tpu.rewrite(flat_computation)

    function_graph = func_graph_from_py_func(FUNCTION_NAME, rewritten, (), {})
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
    computed = iter(results)
    flat = [
        each if id(each) in untouched else next(computed) for each in tf.nest.flatten(returned[0])
    ]
    return tf.nest.pack_sequence_as(returned[0], flat)


def _tensor(value: Any) -> Any:
    if not tf.is_tensor(value):
        raise ExportError(
            f"a TPU computation returned {value!r}, which is no tensor. Return tensors, in any "
            f"nest of dicts, lists and tuples."
        )
    return value
