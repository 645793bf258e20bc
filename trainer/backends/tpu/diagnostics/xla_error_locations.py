"""Source locations in model_fn for the ops that XLA refuses to compile."""

import linecache
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve.errors import UnsupportedOnTpu
from tpuserve.stablehlo import xla_errors

_LIBRARIES = str(Path(tf.__file__).parents[1])


class SourceLocations:
    """The lines of model_fn that created the ops of the step."""

    def __init__(self) -> None:
        """Create an object without lines; the wrapper from `recording` adds lines."""
        self._tracebacks: dict[str, Any] = {}

    def recording(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a model_fn; the wrapper records the traceback of each op that model_fn creates."""

        @wraps(model_fn)
        def record_and_call(*arguments: Any, **named: Any) -> Any:
            try:
                return model_fn(*arguments, **named)
            finally:
                for operation in tf.compat.v1.get_default_graph().get_operations():
                    self._tracebacks[operation.name] = operation.traceback

        # If model_fn is a functools.partial, copy its attribute `keywords` to the wrapper: there
        # `unbound_argument_names` finds the arguments that are bound already.
        record_and_call.keywords = getattr(model_fn, "keywords", {})  # type: ignore[attr-defined]
        return record_and_call

    def find_line(self, node: str) -> str | None:
        """Return "FILE:NUMBER: TEXT" of the source line that created a node; None if unknown."""
        traceback = self._tracebacks.get(node)
        if traceback is None:
            return None
        # If an op was created inside a library, name the user's line that called the library.
        user_frames = [frame for frame in traceback if not frame.filename.startswith(_LIBRARIES)]
        frame = user_frames[-1] if user_frames else traceback.last_user_frame()
        source = linecache.getline(frame.filename, frame.lineno).strip()
        return f"{frame.filename}:{frame.lineno}: {source}"

    def line_of(self, node: str) -> str | None:
        """Return the line of a node that is given as "node@function"; see `find_line`."""
        return self.find_line(node.rpartition("@")[0])


def explain_xla_error(error: BaseException, locations: SourceLocations) -> UnsupportedOnTpu | None:
    """Translate XLA's error about unsupported ops; return None for any other error.

    The returned error names the lines of model_fn that created the ops.
    """
    descriptions = []
    for unsupported in xla_errors.find_unsupported_ops(str(error)):
        line = locations.find_line(unsupported.node)
        created = f", created at {line}" if line else ""
        descriptions.append(f"{unsupported.op} ({unsupported.node}{created})")
    if not descriptions:
        return None
    return UnsupportedOnTpu(
        f"The computation of a TPU core has ops that XLA cannot compile: "
        f"{'; '.join(descriptions)}. Wrap them in tf.compat.v1.tpu.outside_compilation, or move "
        f"them to the input pipeline. On an emulated TPU, TPUConfig(compile_emulated=False) runs "
        f"them without compiling."
    )
