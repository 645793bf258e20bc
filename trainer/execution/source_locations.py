"""Finds the source line in model_fn that created an op of a graph, for error messages."""

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer.config import user_functions
from trainer.execution import run_graph

# Paths that contain no user code: the directory of the installed packages, and the module with the
# graph class through which each op is created. Stack frames of files under these paths are skipped.
_NO_USER_CODE = (str(Path(tf.__file__).parents[1]), run_graph.__file__)


class SourceLocations:
    """Records the ops that model_fn creates, and finds the source line that created each op."""

    def __init__(self) -> None:
        # Keep the operations and not their tracebacks. TensorFlow frees a traceback together with
        # its graph, even if there is a reference to the traceback; an operation keeps its graph.
        self._operations: dict[str, Any] = {}

    def recording(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a model_fn so that the ops that it creates are recorded."""

        @user_functions.wraps(model_fn)
        def record_and_call(*arguments: Any, **named: Any) -> Any:
            try:
                return model_fn(*arguments, **named)
            finally:
                self.record(tf.compat.v1.get_default_graph())

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
        """Return "FILE:NUMBER: TEXT" of the source line that created a node; None if unknown."""
        return self.find_line(node.rpartition("@")[0])
