"""Reads the argument `signatures` of `tpuserve.export.export`: names, functions and inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export.functional.callable_model import CallableModel
from tpuserve.export.functional.function import FunctionModel, display_name
from tpuserve.export.functional.keras_model import KerasModel, is_keras
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
