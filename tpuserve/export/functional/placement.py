"""Traces the function or model of a signature for the CPU metagraph and the TPU metagraph."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import large_constants
from tpuserve.export.functional.callable_model import CallableModel
from tpuserve.export.functional.function import FunctionModel, display_name
from tpuserve.export.functional.keras_model import KerasModel, is_keras
from tpuserve.export.tpu import tpu_call
from tpuserve.export.tpu.batching import BatchConfig, call_batched
from tpuserve.export.tpu.tpu_parts import check_no_strings_on_tpu, has_tpu_part
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE

# TensorFlow reserves signature names with this prefix for ops that loaders run, so no signature of
# the user may begin with it.
_RESERVED_PREFIX = "__saved_model"
_ADVICE = (
    'Give {"x": tf.TensorSpec([None, 4], tf.float32)}, {"name": {"x": ...}} or '
    '{"name": (function, {"x": ...})}.'
)


@dataclass(frozen=True)
class ExportSignature:
    """A signature to export.

    Attributes:
      specs: Name of the input → tf.TensorSpec.
    """

    name: str
    model: CallableModel
    specs: Mapping[str, Any]


def read_signatures(model: Any, signatures: Any) -> list[ExportSignature]:
    """Read the arguments `model` and `signatures` of `tpuserve.export.export`.

    Raises:
      ExportError: A model cannot be called; or `signatures` is None and the model declares no
        inputs.
      InvalidSetting, InvalidType: `signatures` has none of the forms that `export` documents, or
        the inputs of a signature have other names than those of its function.
    """
    if signatures is None:
        wrapped = _wrap_model(model, "the model")
        specs = wrapped.default_specs()
        if specs is None:
            raise ExportError(
                f"no signatures are given and {wrapped.title} does not declare its inputs. "
                f"{_ADVICE}"
            )
        return [_make_signature(DEFAULT_SIGNATURE, wrapped, specs)]
    if not isinstance(signatures, Mapping):
        raise InvalidType(f"signatures is {signatures!r}. {_ADVICE}")
    if not signatures:
        raise InvalidSetting(f"signatures is empty. {_ADVICE}")
    if any(isinstance(value, tf.TensorSpec) for value in signatures.values()):
        signatures = {DEFAULT_SIGNATURE: signatures}
    result = []
    for name, value in signatures.items():
        _check_name(name)
        has_function = isinstance(value, tuple) and len(value) == 2
        function, specs = value if has_function else (model, value)
        subject = f"signature {name!r}" if has_function else "the model"
        result.append(_make_signature(name, _wrap_model(function, subject), specs))
    return result


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise InvalidType(f"a signature is named {name!r}. Give a string.")
    if not name or name.startswith(_RESERVED_PREFIX):
        raise InvalidSetting(
            f"a signature is named {name!r}. Give a name that does not start with "
            f"{_RESERVED_PREFIX}, which TensorFlow keeps for itself."
        )


def _make_signature(name: str, model: CallableModel, specs: Any) -> ExportSignature:
    """Build a signature after a check of its inputs."""
    if not isinstance(specs, Mapping):
        raise InvalidType(f"signature {name!r} is {specs!r}. {_ADVICE}")
    named_specs: dict[str, Any] = {}
    for alias, spec in specs.items():
        if not isinstance(alias, str) or not alias.isidentifier():
            raise InvalidSetting(
                f"signature {name!r} has an input {alias!r}. Give a name of letters, digits and "
                f"underscores, like the name of a Python parameter."
            )
        if not isinstance(spec, tf.TensorSpec):
            raise InvalidType(
                f"input {alias!r} of signature {name!r} is {spec!r}. Give a tf.TensorSpec."
            )
        named_specs[alias] = tf.TensorSpec(spec.shape, spec.dtype, name=alias)
    model.check_aliases(name, list(named_specs))
    return ExportSignature(name, model, named_specs)


def _wrap_model(function: Any, subject: str) -> CallableModel:
    if is_keras(function):
        return KerasModel(function, f"Keras model {function.name!r}")
    if not callable(function):
        raise ExportError(
            f"{subject} is {function!r}, which cannot be called. Give a function, a tf.function, "
            f"an object with __call__ or a Keras model, or a function for each signature."
        )
    return FunctionModel(function, f"{display_name(function)!r}")


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
