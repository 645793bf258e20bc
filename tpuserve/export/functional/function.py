"""A Python function, tf.function or callable object as something to export."""

import functools
import inspect
from collections.abc import Collection, Mapping, Sequence
from types import MethodType
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, TpuserveError
from tpuserve.export.functional.callable_model import CallableModel
from tpuserve.tensorflow_internals import autograph_api, autograph_context, autograph_parser

_USE_TPU = "use_tpu"


class FunctionModel(CallableModel):
    """A Python function, a tf.function, or an object with `__call__`."""

    def __init__(self, function: Any, title: str) -> None:
        """Takes a callable."""
        super().__init__(function, title)
        self._concrete = isinstance(function, tf.types.experimental.ConcreteFunction)
        self._polymorphic = _polymorphic(function)
        self._parameters = None if self._concrete else _parameters(self._python_function())
        self.places_itself = self._parameters is not None and _USE_TPU in self._parameters

    def own_specs(self) -> Mapping[str, Any] | None:
        """Those of a tf.function's input signature, by its parameters' names."""
        if self._concrete:
            specs = tf.nest.flatten(self.function.structured_input_signature)
            return {each.name: each for each in specs}
        signature = getattr(self._polymorphic, "input_signature", None)
        if signature is None or self._parameters is None:
            return None
        return dict(zip(self._parameters, signature, strict=False))

    def check_aliases(self, signature_name: str, aliases: Sequence[str]) -> None:
        """Refuses other inputs than the function has parameters."""
        if self._parameters is None:
            return
        kinds = inspect.Parameter
        if any(each.kind == kinds.VAR_KEYWORD for each in self._parameters.values()):
            return
        taken = [
            name
            for name, each in self._parameters.items()
            if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY) and name != _USE_TPU
        ]
        needed = [name for name in taken if self._parameters[name].default is kinds.empty]
        if set(aliases) - set(taken) or set(needed) - set(aliases):
            raise InvalidSetting(
                f"signature {signature_name!r} has the inputs {_show(aliases)}, and {self.title} "
                f"takes {_show(taken)}. It is called with one keyword per input: give both the "
                f"same names."
            )

    def _returned(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> Any:
        keywords = dict(inputs)
        if self.places_itself:
            keywords[_USE_TPU] = use_tpu
        if self._concrete:
            return self._returned_by_concrete(keywords)
        function = self._python_function()
        # A tf.function's body is built right here: a host part of a TPU computation must not
        # stand in a function of its own.
        if getattr(self._polymorphic, "_autograph", True) and _has_source(function):
            context = autograph_context.ControlStatusCtx(status=autograph_context.Status.ENABLED)
            function = autograph_api.tf_convert(function, context)
        try:
            return function(**keywords)
        except Exception as error:
            # AutoGraph raises an error of its own type, where ours says it all.
            if isinstance(error.__context__, TpuserveError):
                raise error.__context__ from None
            raise

    def _returned_by_concrete(self, keywords: Mapping[str, Any]) -> Any:
        try:
            return self.function(**keywords)
        except AssertionError as error:
            raise ExportError(
                f"{self.title} uses variables that are gone. Keep the object that owns them: "
                f"{error}"
            ) from error

    def _python_function(self) -> Any:
        return self.function if self._polymorphic is None else python_body(self._polymorphic)


def display_name(function: Any) -> str:
    """What a message calls it."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def python_body(polymorphic: Any) -> Any:
    """The Python function in a tf.function, bound to its object if that is a method."""
    function = polymorphic.python_function
    # A bound tf.function has a wrapper there, which AutoGraph changes for good when it converts
    # it. What it wraps is bound to a stand-in for the object.
    method = getattr(function, "__original_wrapped__", None)
    owner = getattr(getattr(method, "__self__", None), "target", None)
    if method is None or owner is None:
        return function
    return MethodType(method.__func__, owner)


def _polymorphic(function: Any) -> Any:
    """The tf.function that is called, or None."""
    kind = tf.types.experimental.PolymorphicFunction
    if isinstance(function, kind):
        return function
    called = getattr(function, "__call__", None)  # noqa: B004
    return called if isinstance(called, kind) else None


def _has_source(function: Any) -> bool:
    """Whether AutoGraph can read a function; what it cannot, it would run as it is and warn of."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        autograph_parser.parse_entity(function, ())
    except Exception:
        # As wide as AutoGraph's own: whatever it trips over, it would run the function as it is.
        return False
    return True


def _parameters(function: Any) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        # Callables of C do not tell.
        return None


def _show(names: Collection[str]) -> str:
    return "{" + ", ".join(names) + "}"
