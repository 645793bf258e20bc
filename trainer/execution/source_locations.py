"""Source locations in model_fn for the ops of a graph."""

import linecache
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer.execution import single_replica_graph

# Stack frames in these files are not the user's: the directory of the installed packages, and the
# module whose graph class creates each op.
_NO_USER_CODE = (str(Path(tf.__file__).parents[1]), single_replica_graph.__file__)


class SourceLocations:
    """The lines of model_fn that created the ops of a graph."""

    def __init__(self) -> None:
        """Create an object without lines; the wrapper from `recording` adds lines."""
        # TensorFlow frees the traceback of an operation with the graph, even if an object refers to
        # the traceback. So keep the operations, which keep their graph.
        self._operations: dict[str, Any] = {}

    def recording(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a model_fn; the wrapper records the ops that model_fn creates."""

        @wraps(model_fn)
        def record_and_call(*arguments: Any, **named: Any) -> Any:
            try:
                return model_fn(*arguments, **named)
            finally:
                self.record(tf.compat.v1.get_default_graph())

        # If model_fn is a functools.partial, copy its attribute `keywords` to the wrapper: there
        # `unbound_argument_names` finds the arguments that are bound already.
        record_and_call.keywords = getattr(model_fn, "keywords", {})  # type: ignore[attr-defined]
        return record_and_call

    def record(self, graph: Any) -> None:
        """Record the ops of a tf.Graph."""
        self._operations.update((operation.name, operation) for operation in graph.get_operations())

    def find_line(self, node: str) -> str | None:
        """Return "FILE:NUMBER: TEXT" of the source line that created a node; None if unknown."""
        if node not in self._operations:
            return None
        traceback = self._operations[node].traceback
        # If an op was created inside a library, name the user's line that called the library.
        user_frames = [frame for frame in traceback if not frame.filename.startswith(_NO_USER_CODE)]
        frame = user_frames[-1] if user_frames else traceback.last_user_frame()
        source = linecache.getline(frame.filename, frame.lineno).strip()
        return f"{frame.filename}:{frame.lineno}: {source}"

    def line_of(self, node: str) -> str | None:
        """Return the line that created a node, given as "node@function"; see `find_line`."""
        return self.find_line(node.rpartition("@")[0])
