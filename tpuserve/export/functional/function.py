"""Wraps a Python function, a tf.function or a callable object as a model to export."""

import functools
import inspect
from collections.abc import Collection, Mapping, Sequence
from types import MethodType
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, TpuserveError
from tpuserve.export.functional.callable_model import CallableModel
from tpuserve.tensorflow_internals import (
    autograph_api,
    autograph_context,
    autograph_parser,
    uses_autograph,
)

_USE_TPU = "use_tpu"


class FunctionModel(CallableModel):
    """A model to export that is any callable except a Keras model, such as a tf.function."""

    def __init__(self, function: Any, title: str) -> None:
        super().__init__(function, title)
        self._is_concrete = isinstance(function, tf.types.experimental.ConcreteFunction)
        self._polymorphic = _find_polymorphic(function)
        self._parameters = None if self._is_concrete else _get_parameters(self._python_function())
        self.places_itself = self._parameters is not None and _USE_TPU in self._parameters

    def default_specs(self) -> Mapping[str, Any] | None:
        """Return the inputs of a concrete function, or of a tf.function with an input_signature.

        Returns:
          Parameter name → tf.TensorSpec; None for other callables.
        """
        if self._is_concrete:
            specs = tf.nest.flatten(self.function.structured_input_signature)
            return {spec.name: spec for spec in specs}
        signature = getattr(self._polymorphic, "input_signature", None)
        if signature is None or self._parameters is None:
            return None
        return dict(zip(self._parameters, signature, strict=False))

    def check_aliases(self, signature_name: str, aliases: Sequence[str]) -> None:
        """Check that the inputs of a signature have the names of the function's parameters."""
        if self._parameters is None:
            return
        kinds = inspect.Parameter
        if any(parameter.kind == kinds.VAR_KEYWORD for parameter in self._parameters.values()):
            return
        accepted = [
            name
            for name, parameter in self._parameters.items()
            if parameter.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
            and name != _USE_TPU
        ]
        required = [name for name in accepted if self._parameters[name].default is kinds.empty]
        if set(aliases) - set(accepted) or set(required) - set(aliases):
            raise InvalidSetting(
                f"signature {signature_name!r} has the inputs {_format_names(aliases)}, and "
                f"{self.title} takes {_format_names(accepted)}. The function is called with one "
                f"keyword argument for each input: give both the same names."
            )

    def _call(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> Any:
        keywords = dict(inputs)
        if self.places_itself:
            keywords[_USE_TPU] = use_tpu
        if self._is_concrete:
            return self._call_concrete(keywords)
        function = self._python_function()
        # Call the Python function of a tf.function directly. A call of the tf.function would create
        # a separate function in the graph.
        is_converted = self._polymorphic is None or uses_autograph(self._polymorphic)
        if is_converted and _has_source(function):
            context = autograph_context.ControlStatusCtx(status=autograph_context.Status.ENABLED)
            function = autograph_api.tf_convert(function, context)
        try:
            return function(**keywords)
        except Exception as error:
            # AutoGraph replaces an exception by one of another type. Raise the original exception
            # if it is an error class of tpuserve.
            if isinstance(error.__context__, TpuserveError):
                raise error.__context__ from None
            raise

    def _call_concrete(self, keywords: Mapping[str, Any]) -> Any:
        try:
            return self.function(**keywords)
        except AssertionError as error:
            raise ExportError(
                f"{self.title} uses variables that are gone. Keep the object that owns them: "
                f"{error}"
            ) from error

    def _python_function(self) -> Any:
        """Return the user's callable; for a tf.function, the Python function that it traces."""
        return self.function if self._polymorphic is None else python_body(self._polymorphic)


def display_name(function: Any) -> str:
    """Return the name of a callable for messages."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def python_body(polymorphic: Any) -> Any:
    """Return the Python function that a tf.function traces; a method is bound to its object."""
    function = polymorphic.python_function
    # For a method, `python_function` is a wrapper, which AutoGraph would change permanently. So
    # return the method itself, bound to its object.
    method = getattr(function, "__original_wrapped__", None)
    owner = getattr(getattr(method, "__self__", None), "target", None)
    if method is None or owner is None:
        return function
    return MethodType(method.__func__, owner)


def _find_polymorphic(function: Any) -> Any:
    """Return a callable or its `__call__`, whichever is a tf.function; None if neither is."""
    kind = tf.types.experimental.PolymorphicFunction
    if isinstance(function, kind):
        return function
    call = getattr(function, "__call__", None)  # noqa: B004
    return call if isinstance(call, kind) else None


def _has_source(function: Any) -> bool:
    """Return whether AutoGraph can read the source code of a function."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        autograph_parser.parse_entity(function, ())
    except Exception:
        # Catch all exceptions, as AutoGraph does: its parser raises various types of them.
        return False
    return True


def _get_parameters(function: Any) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _format_names(names: Collection[str]) -> str:
    return "{" + ", ".join(names) + "}"
