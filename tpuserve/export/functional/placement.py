"""The functions behind the signatures of either metagraph: traced, and put on the TPU."""

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export.functional.signatures import ExportSignature
from tpuserve.export.tpu import tpu_call
from tpuserve.export.tpu.batching import BatchConfig, call_batched
from tpuserve.export.tpu.tpu_parts import check_no_strings_on_tpu, has_tpu_part

logger = logging.getLogger(__name__)


def trace_for_cpu(entry: ExportSignature) -> Any:
    """The concrete function of the model as it is.

    Raises:
      ExportError: it is on a TPU.
    """
    function = _traced(entry, lambda inputs: entry.callee(inputs, use_tpu=False))
    if has_tpu_part(function.graph):
        raise ExportError(
            f"{entry.callee.title} puts something on the TPU for the metagraph {{serve}} as well. "
            f"Let it take a parameter use_tpu, and do so only if that is True."
        )
    return function


def trace_for_tpu(entry: ExportSignature, batch_config: BatchConfig | None) -> Any:
    """The concrete function of the model on the TPU; see `tpuserve.export.export`.

    Raises:
      ExportError: strings are on the TPU.
      InvalidSetting: a batch configuration for a function that cannot be batched here.
    """
    if entry.callee.places_itself:
        function = _placed_by_itself(entry, batch_config)
    elif batch_config is None:
        function = _traced(entry, lambda inputs: _whole(entry, inputs))
    else:
        _check_rows(entry)
        function = _traced(
            entry,
            lambda inputs: call_batched(lambda rows: _whole(entry, rows), inputs, batch_config),
        )
    check_no_strings_on_tpu(function.graph, f"signature {entry.name!r}")
    return function


def _traced(entry: ExportSignature, computation: Callable[[Any], Any]) -> Any:
    def serve(**inputs: Any) -> Any:
        return computation(inputs)

    return tf.function(serve, autograph=False).get_concrete_function(**entry.specs)


def _placed_by_itself(entry: ExportSignature, batch_config: BatchConfig | None) -> Any:
    if batch_config is not None:
        raise InvalidSetting(
            f"batch_config is given, and {entry.callee.title} takes use_tpu and so places itself. "
            f"Leave batch_config out and call tpuserve.export.inference_on_tpu in the function."
        )
    function = _traced(entry, lambda inputs: entry.callee(inputs, use_tpu=True))
    if not has_tpu_part(function.graph):
        logger.warning(
            "signature %s puts nothing on the TPU: %s does not call tpuserve.export.on_tpu or "
            "inference_on_tpu when use_tpu is True",
            entry.name,
            entry.callee.title,
        )
    return function


def _whole(entry: ExportSignature, inputs: Any) -> Any:
    given = {id(each) for each in inputs.values()}

    def computation(inputs: Any) -> Any:
        outputs = entry.callee(inputs, use_tpu=True)
        if all(id(each) in given for each in outputs.values()):
            raise ExportError(
                f"{entry.callee.title} returns its inputs as they are, so there is nothing to run "
                f"on the TPU. Export it with to_tpu=False."
            )
        return outputs

    return tpu_call.on_tpu(computation, inputs)


def _check_rows(entry: ExportSignature) -> None:
    if not entry.specs:
        raise InvalidSetting(
            f"batch_config is given, and signature {entry.name!r} has no inputs. Leave it out."
        )
    for alias, spec in entry.specs.items():
        if spec.shape.rank is not None and (not spec.shape.rank or spec.shape[0] is not None):
            raise InvalidSetting(
                f"batch_config is given, and input {alias!r} of signature {entry.name!r} has the "
                f"shape {spec.shape}. Let its first dimension be None, for the rows of a batch."
            )
