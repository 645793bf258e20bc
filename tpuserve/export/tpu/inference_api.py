"""Parts of a model on the TPU, placed by its model_fn: what an export of version V2 wants."""

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

# tf.estimator.ModeKeys.PREDICT; trainer's ModeKeys are no part of this package.
_PREDICT = "infer"

# What a spec may hold of other modes, which would be tensors inside of the TPU computation.
_OF_OTHER_MODES = ("loss", "train_op", "eval_metrics", "eval_metric_ops", "host_call")


def inference_on_tpu(
    computation: Callable[..., Any],
    inputs_to_tpu: Any,
    num_batch_threads: int,
    max_batch_size: int,
    batch_timeout_micros: int,
    allowed_batch_sizes: Any,
    max_enqueued_batches: int = 100,
) -> Any:
    """The outputs of a computation on the TPU, with batching around it.

    Batches go round the TPU's cores.

    Example:
      if params["use_tpu"]:
          (logits,) = inference_on_tpu(network, [image], 1, 8, 1000, [1, 8])
      else:
          logits = network(image)

    Args:
      computation: takes the inputs, returns a tensor or a nest of tensors, [rows, ...] each.
      inputs_to_tpu: a list of tensors, [rows, ...], the computation's arguments; or any other
        nest of them, its only argument.
      num_batch_threads, max_batch_size, batch_timeout_micros, allowed_batch_sizes,
        max_enqueued_batches: see `BatchConfig`.

    Returns:
      What the computation returned, in tensors of the default graph. A single tensor is in a list
      of one, as `tf.compat.v1.tpu.rewrite` returns it.

    Raises:
      InvalidSetting: see `BatchConfig`.
      ExportError: an input is sparse, something has no rows or is no tensor, or the model is on
        the TPU as a whole.
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
        returned = computation(*inputs) if is_list else computation(inputs)
        return [returned] if tf.is_tensor(returned) else returned

    return call_batched(lambda inputs: on_tpu(call, inputs), inputs_to_tpu, config)


def call_computation(
    computation_inputs: Any,
    computation: Callable[[Any], Any],
    batch_config: BatchConfig | None = None,
) -> list[Any]:
    """The outputs, flat, of a computation that calls `tpu.rewrite` itself.

    Each call runs on one core, and calls go round the cores.

    Args:
      computation_inputs: a nest of tensors.
      computation: takes a nest like it, and returns what `tf.compat.v1.tpu.rewrite` does.
      batch_config: how to batch around it; None for no batching.

    Raises:
      ExportError: it does not call `tpu.rewrite`, or see `inference_on_tpu`.
    """

    def call(inputs: Any) -> list[Any]:
        def build() -> Any:
            returned = computation(inputs)
            operations = tf.compat.v1.get_default_graph().get_operations()
            if not any(each.type == REPLICATE_METADATA for each in operations):
                raise ExportError(
                    "a computation given to call_computation did not call tpu.rewrite, so nothing "
                    "of it is for the TPU. Call tf.compat.v1.tpu.rewrite in it, or use "
                    "inference_on_tpu, which does."
                )
            return returned

        return partitioned_call(build)

    if batch_config is None:
        return call(computation_inputs)
    results: list[Any] = call_batched(call, computation_inputs, batch_config)
    return results


def model_fn_inference_on_tpu(
    model_fn: Callable[..., Any],
    features: Any,
    labels: Any = None,
    config: Any = None,
    params: Any = None,
    batch_config: BatchConfig | None = None,
) -> Any:
    """The PREDICT spec of a model_fn whose computation runs on the TPU as a whole.

    Example:
      def tpu_model_fn(features, labels, mode, params):
          if mode == ModeKeys.PREDICT and params["use_tpu"]:
              batches = BatchConfig(1, 8, 1000, [1, 8])
              return model_fn_inference_on_tpu(model_fn, features, labels, None, params, batches)
          return model_fn(features, labels, mode, params)

    Args:
      model_fn: takes features and, where it names them, labels, mode, config and params; returns
        a spec of mode PREDICT.
      features, labels, config, params: what to call it with.
      batch_config: how to batch around it; None for no batching, as sparse features need it.

    Returns:
      The spec with its predictions and export outputs as results of the call.

    Raises:
      ExportError: an export output has no form on a TPU, or see `inference_on_tpu`.
      InvalidType: a BatchConfig stands in the place of another argument, or something else in its.
    """
    _check_batch_config(batch_config, labels=labels, config=config, params=params)
    specs: list[Any] = []

    def computation(on_tpu_features: Any) -> dict[str, Any]:
        specs.append(_call_model_fn(model_fn, on_tpu_features, labels, config, params))
        return export_outputs.extract_tensors(specs[0])

    if batch_config is None:
        tensors = on_tpu(computation, features)
    else:
        tensors = call_batched(lambda inputs: on_tpu(computation, inputs), features, batch_config)
    (spec,) = specs
    changes: dict[str, Any] = {each: None for each in _OF_OTHER_MODES if hasattr(spec, each)}
    changes["predictions"] = tensors["predictions"]
    changes["export_outputs"] = export_outputs.rebuild_export_outputs(spec, tensors)
    replace = getattr(spec, "_replace", None)
    return replace(**changes) if replace else dataclasses.replace(spec, **changes)


def _check_batch_config(batch_config: Any, **others: Any) -> None:
    for name, value in others.items():
        if isinstance(value, BatchConfig):
            raise InvalidType(
                f"{name} is a BatchConfig. The arguments are model_fn, features, labels, config, "
                f"params and batch_config, in this order: give those before it, or name it, "
                f"batch_config=..."
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
            f"{type(spec).__name__}. Return a spec with predictions "
            f"and export_outputs."
        )
    return spec
