"""The functions behind the signatures of either metagraph: traced, and put on the TPU."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export import wrap
from tpuserve.export.batching import BatchConfig, batched
from tpuserve.export.plain.graphs import with_called
from tpuserve.export.plain.signatures import EntryPoint

logger = logging.getLogger(__name__)

_CALL = "TPUPartitionedCall"
_METADATA = "TPUReplicateMetadata"
_MEMBER = "_tpu_replicate"
_HOST_PART = "_xla_outside_compilation"


def on_cpu(entry: EntryPoint) -> Any:
    """The concrete function of the model as it is.

    Raises:
      ExportError: it is on a TPU.
    """
    function = _traced(entry, lambda inputs: entry.callee(inputs, use_tpu=False))
    if _has_tpu_part(function.graph):
        raise ExportError(
            f"{entry.callee.title} puts something on the TPU for the metagraph {{serve}} as well. "
            f"Let it take a parameter use_tpu, and do so only if that is True."
        )
    return function


def on_tpu(entry: EntryPoint, batch_config: BatchConfig | None) -> Any:
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
            entry, lambda inputs: batched(lambda rows: _whole(entry, rows), inputs, batch_config)
        )
    _check_strings(entry, function)
    return function


def _traced(entry: EntryPoint, computation: Callable[[Any], Any]) -> Any:
    def serve(**inputs: Any) -> Any:
        return computation(inputs)

    return tf.function(serve, autograph=False).get_concrete_function(**entry.specs)


def _placed_by_itself(entry: EntryPoint, batch_config: BatchConfig | None) -> Any:
    if batch_config is not None:
        raise InvalidSetting(
            f"batch_config is given, and {entry.callee.title} takes use_tpu and so places itself. "
            f"Leave batch_config out and call tpuserve.export.inference_on_tpu in the function."
        )
    function = _traced(entry, lambda inputs: entry.callee(inputs, use_tpu=True))
    if not _has_tpu_part(function.graph):
        logger.warning(
            "signature %s puts nothing on the TPU: %s does not call tpuserve.export.on_tpu or "
            "inference_on_tpu when use_tpu is True",
            entry.name,
            entry.callee.title,
        )
    return function


def _whole(entry: EntryPoint, inputs: Any) -> Any:
    given = {id(each) for each in inputs.values()}

    def computation(inputs: Any) -> Any:
        outputs = entry.callee(inputs, use_tpu=True)
        if all(id(each) in given for each in outputs.values()):
            raise ExportError(
                f"{entry.callee.title} returns its inputs as they are, so there is nothing to run "
                f"on the TPU. Export it with to_tpu=False."
            )
        return outputs

    return wrap.on_tpu(computation, inputs)


def _check_rows(entry: EntryPoint) -> None:
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


def _has_tpu_part(graph: Any) -> bool:
    return any(
        operation.type in (_CALL, _METADATA)
        for each in with_called(graph)
        for operation in each.get_operations()
    )


def _tpu_graphs(graph: Any) -> Iterator[Any]:
    """The graphs of the functions that run on the TPU."""
    for each in with_called(graph):
        for operation in each.get_operations():
            if operation.type == _CALL:
                function = each._get_function(operation.get_attr("f").name)
                # What TensorFlow's Defun made has no graph to look at.
                if getattr(function, "graph", None) is not None:
                    yield function.graph


def _check_strings(entry: EntryPoint, function: Any) -> None:
    for graph in _tpu_graphs(function.graph):
        for operation in graph.get_operations():
            if _is_on_tpu(operation) and _has_strings(operation):
                raise ExportError(
                    f"signature {entry.name!r} has strings on the TPU, in {operation.type} "
                    f"{operation.name!r}; a TPU computes with numbers only. Wrap what handles "
                    f"strings in tf.compat.v1.tpu.outside_compilation, or export a function with "
                    f"a parameter use_tpu that puts the numeric part alone on the TPU, with "
                    f"tpuserve.export.on_tpu."
                )


def _has_strings(operation: Any) -> bool:
    return any(each.dtype == tf.string for each in (*operation.inputs, *operation.outputs))


def _is_on_tpu(operation: Any) -> bool:
    attributes = operation.node_def.attr
    # tpu.rewrite hands every result on through an Identity, those of host parts too.
    return _MEMBER in attributes and _HOST_PART not in attributes and operation.type != "Identity"
