"""What XLA said about ops that it has no form for, made readable."""

import linecache
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve.errors import UnsupportedOnTpu
from tpuserve.runtime import xla_errors

_LIBRARIES = str(Path(tf.__file__).parents[1])


class SourceLocations:
    """Where the lines of a model_fn are that make its ops."""

    def __init__(self) -> None:
        """No model_fn has run."""
        self._tracebacks: dict[str, Any] = {}

    def recording(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """The model_fn, which from now on leaves behind where it makes its ops."""

        @wraps(model_fn)
        def watched(*arguments: Any, **named: Any) -> Any:
            try:
                return model_fn(*arguments, **named)
            finally:
                for each in tf.compat.v1.get_default_graph().get_operations():
                    self._tracebacks[each.name] = each.traceback

        # As functools.partial says what it has bound.
        watched.keywords = getattr(model_fn, "keywords", {})  # type: ignore[attr-defined]
        return watched

    def line_of(self, node: str) -> str | None:
        """The line that made a node; None where it is not known."""
        traceback = self._tracebacks.get(node)
        if traceback is None:
            return None
        # A library that builds layers is of less help than the line that asked for them.
        own = [each for each in traceback if not each.filename.startswith(_LIBRARIES)]
        frame = own[-1] if own else traceback.last_user_frame()
        source = linecache.getline(frame.filename, frame.lineno).strip()
        return f"{frame.filename}:{frame.lineno}: {source}"


def explain_xla_error(error: BaseException, places: SourceLocations) -> UnsupportedOnTpu | None:
    """What to raise from an error that says that XLA refuses ops; None for another error."""
    lines = []
    for each in xla_errors.find_unsupported_ops(str(error)):
        line = places.line_of(each.node)
        lines.append(f"{each.op} ({each.node}{f', made at {line}' if line else ''})")
    if not lines:
        return None
    return UnsupportedOnTpu(
        f"the computation of a TPU core has what XLA cannot compile: {'; '.join(lines)}. Wrap it "
        f"in tf.compat.v1.tpu.outside_compilation, or move it to the input pipeline. "
        f"TPUConfig(compile_emulated=False) goes on without compiling, on an emulated TPU alone."
    )
