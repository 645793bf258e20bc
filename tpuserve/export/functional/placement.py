"""Traces the function or model of a signature for the CPU metagraph and the TPU metagraph."""

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export import large_constants
from tpuserve.export.functional.signatures import ExportSignature
from tpuserve.export.tpu import tpu_call
from tpuserve.export.tpu.batching import BatchConfig, call_batched
from tpuserve.export.tpu.tpu_parts import check_no_strings_on_tpu, has_tpu_part

logger = logging.getLogger(__name__)


def trace_for_cpu(signature: ExportSignature) -> Any:
    """Trace the model of a signature for the CPU metagraph; return the concrete function.

    Raises:
      ExportError: The model puts ops on the TPU even with `use_tpu` False.
    """

    def computation(inputs: Any) -> Any:
        return signature.model(inputs, use_tpu=False)

    function = _trace(signature, computation)
    if has_tpu_part(function.graph):
        raise ExportError(
            f"{signature.model.title} puts ops on the TPU for the metagraph {{serve}} as "
            f"well. Let it take a parameter use_tpu, and use the TPU only if use_tpu is True."
        )
    return function


def trace_for_tpu(signature: ExportSignature, batch_config: BatchConfig | None) -> Any:
    """Trace the model of a signature for the TPU metagraph; return the concrete function.

    The whole model runs on the TPU, unless it has a parameter `use_tpu` and itself chooses which
    ops run on the TPU.

    Args:
      batch_config: How to batch requests before the TPU; None for no batching.

    Raises:
      InvalidSetting: `batch_config` is set, although the model has a parameter `use_tpu` or an
        input with a fixed batch size.
    """
    if signature.model.places_itself:
        function = _trace_self_placed(signature, batch_config)
    else:
        function = _trace_whole(signature, batch_config)
    check_no_strings_on_tpu(function.graph, f"signature {signature.name!r}")
    return function


def _trace(signature: ExportSignature, computation: Callable[[Any], Any]) -> Any:
    def serve(**inputs: Any) -> Any:
        large_constants.lift_constants()
        return computation(inputs)

    return tf.function(serve, autograph=False).get_concrete_function(**signature.specs)


def _trace_self_placed(signature: ExportSignature, batch_config: BatchConfig | None) -> Any:
    """Trace, with `use_tpu` True, a model that itself chooses its ops for the TPU."""
    if batch_config is not None:
        raise InvalidSetting(
            f"batch_config is set, and {signature.model.title} takes use_tpu and so places itself. "
            f"Leave batch_config out and call tpuserve.export.inference_on_tpu in the function."
        )

    def computation(inputs: Any) -> Any:
        return signature.model(inputs, use_tpu=True)

    function = _trace(signature, computation)
    if not has_tpu_part(function.graph):
        logger.warning(
            "signature %s puts nothing on the TPU: %s does not call tpuserve.export.on_tpu or "
            "inference_on_tpu when use_tpu is True",
            signature.name,
            signature.model.title,
        )
    return function


def _trace_whole(signature: ExportSignature, batch_config: BatchConfig | None) -> Any:
    """Trace a model so that all of it runs on the TPU, with or without batching of requests."""

    def call_on_tpu(inputs: Any) -> Any:
        return _call_on_tpu(signature, inputs)

    if batch_config is None:
        return _trace(signature, call_on_tpu)
    _check_open_batch(signature)

    def call_in_batches(inputs: Any) -> Any:
        return call_batched(call_on_tpu, inputs, batch_config)

    return _trace(signature, call_in_batches)


def _call_on_tpu(signature: ExportSignature, inputs: Any) -> Any:
    """Build a model as one TPU computation in the default graph."""
    input_ids = {id(tensor) for tensor in inputs.values()}

    def computation(inputs: Any) -> Any:
        outputs = signature.model(inputs, use_tpu=True)
        if all(id(output) in input_ids for output in outputs.values()):
            raise ExportError(
                f"{signature.model.title} returns its inputs as they are, so there is nothing to "
                f"run on the TPU. Export it with to_tpu=False."
            )
        return outputs

    return tpu_call.on_tpu(computation, inputs)


def _check_open_batch(signature: ExportSignature) -> None:
    """Check that the first dimension of each input is None, so that requests can be batched."""
    if not signature.specs:
        raise InvalidSetting(
            f"batch_config is set, and signature {signature.name!r} has no inputs. Leave "
            f"batch_config out."
        )
    for alias, spec in signature.specs.items():
        if spec.shape.rank is not None and (not spec.shape.rank or spec.shape[0] is not None):
            raise InvalidSetting(
                f"batch_config is set, and input {alias!r} of signature {signature.name!r} has the "
                f"shape {spec.shape}. Let its first dimension be None, for the rows of a batch."
            )
