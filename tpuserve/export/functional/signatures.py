"""What the caller wants served: which functions, with which inputs, under which names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export.functional.callable_model import CallableModel
from tpuserve.export.functional.function import FunctionModel, display_name
from tpuserve.export.functional.keras_model import KerasModel, is_keras
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE

# TensorFlow's loaders look for their own ops under such names.
_RESERVED = "__saved_model"
_FORM = (
    'Give {"x": tf.TensorSpec([None, 4], tf.float32)}, {"name": {"x": ...}} or '
    '{"name": (function, {"x": ...})}.'
)


@dataclass(frozen=True)
class ExportSignature:
    """One signature to be.

    Attributes:
      name: of the signature.
      callee: the function behind it.
      specs: alias → tf.TensorSpec.
    """

    name: str
    callee: CallableModel
    specs: Mapping[str, Any]


def read_signatures(model: Any, signatures: Any) -> list[ExportSignature]:
    """The entry points that `signatures` asks for; see `tpuserve.export.export` for its forms.

    Raises:
      ExportError: there is nothing to call, or no signatures and none to be found in the model.
      InvalidSetting, InvalidType: signatures of no such form, or that do not fit the function.
    """
    if signatures is None:
        callee = _callee(model, "the model")
        specs = callee.own_specs()
        if specs is None:
            raise ExportError(
                f"no signatures are given and {callee.title} does not tell its inputs. {_FORM}"
            )
        return [_entry_point(DEFAULT_SIGNATURE, callee, specs)]
    if not isinstance(signatures, Mapping):
        raise InvalidType(f"signatures is {signatures!r}. {_FORM}")
    if not signatures:
        raise InvalidSetting(f"signatures is empty. {_FORM}")
    if any(isinstance(each, tf.TensorSpec) for each in signatures.values()):
        signatures = {DEFAULT_SIGNATURE: signatures}
    found = []
    for name, asked in signatures.items():
        _check_name(name)
        function, specs = asked if _is_pair(asked) else (model, asked)
        whose = f"signature {name!r}" if _is_pair(asked) else "the model"
        found.append(_entry_point(name, _callee(function, whose), specs))
    return found


def _is_pair(asked: Any) -> bool:
    return isinstance(asked, tuple) and len(asked) == 2


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise InvalidType(f"a signature is named {name!r}. Give a string.")
    if not name or name.startswith(_RESERVED):
        raise InvalidSetting(
            f"a signature is named {name!r}. Give a name that does not start with {_RESERVED}, "
            f"which TensorFlow keeps for itself."
        )


def _entry_point(name: str, callee: CallableModel, specs: Any) -> ExportSignature:
    if not isinstance(specs, Mapping):
        raise InvalidType(f"signature {name!r} is {specs!r}. {_FORM}")
    named: dict[str, Any] = {}
    for alias, spec in specs.items():
        if not isinstance(alias, str) or not alias.isidentifier():
            raise InvalidSetting(
                f"signature {name!r} has an input {alias!r}. Give a name of letters, digits and "
                f"underscores, as a Python parameter has."
            )
        if not isinstance(spec, tf.TensorSpec):
            raise InvalidType(
                f"input {alias!r} of signature {name!r} is {spec!r}. Give a tf.TensorSpec."
            )
        named[alias] = tf.TensorSpec(spec.shape, spec.dtype, name=alias)
    callee.check_aliases(name, list(named))
    return ExportSignature(name, callee, named)


def _callee(function: Any, whose: str) -> CallableModel:
    if is_keras(function):
        return KerasModel(function, f"Keras model {function.name!r}")
    if not callable(function):
        raise ExportError(
            f"{whose} is {function!r}, which cannot be called. Give a function, a tf.function, an "
            f"object with __call__ or a Keras model, or a function with each signature."
        )
    return FunctionModel(function, f"{display_name(function)!r}")
