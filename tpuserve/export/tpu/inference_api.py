"""Functions that a model_fn or an exported function calls to put some of its ops on the TPU.

With `export_saved_model_api_version` V2 of TPUEstimator, the model_fn itself calls these functions,
and so chooses what runs on the TPU.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import export_outputs
from tpuserve.export.tpu.batching import BatchConfig, call_batched
from tpuserve.export.tpu.tpu_call import on_tpu, partitioned_call
from tpuserve.graph.graph_walk import REPLICATE_METADATA

# The value of tf.estimator.ModeKeys.PREDICT. trainer.ModeKeys is not imported, because tpuserve
# does not depend on trainer.
_PREDICT = "infer"

# The fields of an EstimatorSpec that only training and evaluation use. They are set to None in the
# spec, because their tensors are inside of the TPU computation, where the exporter cannot use them.
_FIELDS_OF_OTHER_MODES = ("loss", "train_op", "eval_metrics", "eval_metric_ops", "host_call")


def inference_on_tpu(
    computation: Callable[..., Any],
    inputs_to_tpu: Any,
    num_batch_threads: int,
    max_batch_size: int,
    batch_timeout_micros: int,
    allowed_batch_sizes: Any = None,
    max_enqueued_batches: int = 100,
) -> Any:
    """Merge requests into batches, and run a computation on the TPU for each batch.

    Each batch runs on one core; successive batches run on successive cores.

    Example:
      if params["use_tpu"]:
          (logits,) = inference_on_tpu(network, [image], 1, 8, 1000, [1, 8])
      else:
          logits = network(image)

    Args:
      computation: Takes the inputs and returns a tensor or a nest of tensors, [rows, ...] each.
      inputs_to_tpu: A list of tensors, [rows, ...], which are the arguments of the computation; or
        any other nest of tensors, which is its only argument.
      num_batch_threads: Number of batches that run in parallel.
      max_batch_size: Largest number of rows in a batch; a request with more rows is refused.
      batch_timeout_micros: The longest time that a batch waits for more rows, in microseconds.
      allowed_batch_sizes: Numbers of rows to which batches are padded, in increasing order; the
        last one is max_batch_size. None or an empty list means no padding.
      max_enqueued_batches: Largest number of waiting batches; further requests are refused.

    Returns:
      The result of the computation, as tensors of the default graph. A single tensor is returned
      as a list of one tensor, like the result of `tf.compat.v1.tpu.rewrite`.

    Raises:
      InvalidSetting: A number is too small, or allowed_batch_sizes is not increasing.
      ExportError: An input is sparse, an input or output is a scalar, an output is not a tensor,
        or the whole model is on the TPU already.
    """
    config = BatchConfig(
        num_batch_threads,
        max_batch_size,
        batch_timeout_micros,
        allowed_batch_sizes,
        max_enqueued_batches,
    )

    def call(inputs: Any) -> Any:
        is_list = isinstance(inputs, list | tuple)
        results = computation(*inputs) if is_list else computation(inputs)
        return [results] if tf.is_tensor(results) else results

    return call_batched(lambda inputs: on_tpu(call, inputs), inputs_to_tpu, config)


def call_computation(
    computation_inputs: Any,
    computation: Callable[[Any], Any],
    batch_config: BatchConfig | None = None,
) -> list[Any]:
    """Run a computation that itself calls `tpu.rewrite`, with or without batching of requests.

    Each call runs on one core; successive calls run on successive cores.

    Args:
      computation_inputs: A nest of tensors.
      computation: Takes a nest like `computation_inputs`, and returns the result of
        `tf.compat.v1.tpu.rewrite`.
      batch_config: How to batch requests before the computation; None for no batching.

    Returns:
      The outputs of the computation, flattened.

    Raises:
      ExportError: The computation does not call `tpu.rewrite`, or is inside of another TPU
        computation; or with batching, an input is sparse, or an input or output is a scalar.
    """

    def call(inputs: Any) -> list[Any]:
        def build() -> Any:
            results = computation(inputs)
            operations = tf.compat.v1.get_default_graph().get_operations()
            if not any(operation.type == REPLICATE_METADATA for operation in operations):
                raise ExportError(
                    "a computation given to call_computation did not call tpu.rewrite, so it runs "
                    "nothing on the TPU. Call tf.compat.v1.tpu.rewrite in it, or use "
                    "inference_on_tpu, which calls tpu.rewrite itself."
                )
            return results

        return partitioned_call(build)

    if batch_config is None:
        return call(computation_inputs)
    outputs: list[Any] = call_batched(call, computation_inputs, batch_config)
    return outputs


def model_fn_inference_on_tpu(
    model_fn: Callable[..., Any],
    features: Any,
    labels: Any = None,
    config: Any = None,
    params: Any = None,
    batch_config: BatchConfig | None = None,
) -> Any:
    """Call a model_fn in mode PREDICT, so that the whole model runs on the TPU.

    Example:
      def tpu_model_fn(features, labels, mode, params):
          if mode == ModeKeys.PREDICT and params["use_tpu"]:
              batches = BatchConfig(1, 8, 1000, [1, 8])
              return model_fn_inference_on_tpu(model_fn, features, labels, None, params, batches)
          return model_fn(features, labels, mode, params)

    Args:
      model_fn: Takes features and, if it has parameters of these names, labels, mode, config and
        params; returns an EstimatorSpec of mode PREDICT.
      batch_config: How to batch requests before the computation; None for no batching. It must be
        None if a feature is sparse.

    Returns:
      A copy of the EstimatorSpec, whose predictions and export outputs are results of the TPU
      computation.

    Raises:
      ExportError: An export output has a type that cannot be exported for a TPU, or the whole model
        is on the TPU already. With batching, also if a feature is sparse or an output is a scalar.
      InvalidType: `batch_config` is not a BatchConfig, or another argument is one.
    """
    _check_batch_config(batch_config, labels=labels, config=config, params=params)
    specs: list[Any] = []

    def computation(tpu_features: Any) -> dict[str, Any]:
        specs.append(_call_model_fn(model_fn, tpu_features, labels, config, params))
        return export_outputs.extract_tensors(specs[0])

    if batch_config is None:
        tensors = on_tpu(computation, features)
    else:
        tensors = call_batched(lambda inputs: on_tpu(computation, inputs), features, batch_config)
    (spec,) = specs
    changes: dict[str, Any] = {
        field: None for field in _FIELDS_OF_OTHER_MODES if hasattr(spec, field)
    }
    changes["predictions"] = tensors["predictions"]
    changes["export_outputs"] = export_outputs.rebuild_export_outputs(spec, tensors)
    replace = getattr(spec, "_replace", None)
    return replace(**changes) if replace else dataclasses.replace(spec, **changes)


def _check_batch_config(batch_config: Any, **others: Any) -> None:
    for name, value in others.items():
        if isinstance(value, BatchConfig):
            raise InvalidType(
                f"{name} is a BatchConfig. The arguments are model_fn, features, labels, config, "
                f"params and batch_config, in this order: pass the arguments before it, or use "
                f"the keyword batch_config=..."
            )
    if batch_config is not None and not isinstance(batch_config, BatchConfig):
        raise InvalidType(f"batch_config is {batch_config!r}. Give a BatchConfig, or None.")


def _call_model_fn(
    model_fn: Callable[..., Any], features: Any, labels: Any, config: Any, params: Any
) -> Any:
    available = {"labels": labels, "mode": _PREDICT, "config": config, "params": params}
    names = inspect.signature(model_fn).parameters
    spec = model_fn(features, **{name: available[name] for name in names if name in available})
    if not hasattr(spec, "predictions") or not hasattr(spec, "export_outputs"):
        raise InvalidSetting(
            f"model_fn {getattr(model_fn, '__name__', model_fn)} returned "
            f"{type(spec).__name__}. Return a spec with predictions and export_outputs."
        )
    return spec
