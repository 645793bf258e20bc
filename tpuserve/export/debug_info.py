"""Records which line of user code created each node of a TPU computation, for error messages.

The lines are stored in TensorFlow's own format, as a GraphDebugInfo in
debug/saved_model_debug_info.pb.
"""

import os
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework.graph_debug_info_pb2 import GraphDebugInfo

from tpuserve import tensorflow_internals

FILE = "debug/saved_model_debug_info.pb"

# Types of the ops whose source lines are not recorded, to keep the file small. They are frequent,
# and no error message of a compiler names them, because all compilers accept them.
_IGNORED_OPS = frozenset(
    ("Const", "Identity", "IdentityN", "NoOp", "Placeholder", "ReadVariableOp")
)

_REPOSITORY = Path(__file__).parent.parent.parent
# Prefixes of the paths of files that are not user code: packages of this project, the Python
# library, installed packages and their commands.
_LIBRARY_PREFIXES = tuple(
    f"{directory}{os.sep}"
    for directory in (
        *(_REPOSITORY / package for package in ("tpuserve", "trainer", "server")),
        # The directories of Python's standard library, of installed packages and of commands.
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib", "scripts")),
        Path(tf.__file__).parent.parent,
    )
)


@dataclass(frozen=True)
class SourceLine:
    """A line of user code that created a node."""

    file: str
    number: int
    function: str


def find_source_lines(graph: Any) -> dict[str, SourceLine]:
    """Find the line of user code that created each node of the TPU computations in a tf.Graph.

    Returns:
      Node name → line, for the nodes whose line is known. Nodes of different functions can have the
      same name and different lines.
    """
    lines: dict[str, SourceLine] = {}
    for operation, function in _operations_on_tpu(graph):
        is_ignored = operation.type in _IGNORED_OPS or operation.type.startswith("TPU")
        line = None if is_ignored else _find_user_line(operation)
        if line is not None and lines.setdefault(operation.name, line) != line:
            lines[f"{operation.name}@{function}"] = line
    return lines


def write_debug_info(directory: str, lines: Mapping[str, SourceLine]) -> None:
    """Write the debug info file of a SavedModel, unless `lines` is empty.

    Args:
      lines: Node name → line of user code, as from `find_source_lines`.
    """
    if not lines:
        return
    proto = GraphDebugInfo()
    files: dict[str, int] = {}
    frame_ids: dict[SourceLine, int] = {}
    for node, line in lines.items():
        if line not in frame_ids:
            frame_ids[line] = len(frame_ids) + 1
            frame = proto.frames_by_id[frame_ids[line]]
            frame.file_index = files.setdefault(line.file, len(files))
            frame.line = line.number
            frame.func = line.function
            proto.traces_by_id[frame_ids[line]].frame_id.append(frame_ids[line])
        proto.name_to_trace_id[node] = frame_ids[line]
    proto.files.extend(files)
    path = tf.io.gfile.join(directory, FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(proto.SerializeToString(deterministic=True))


def load_line_lookup(directory: str | os.PathLike[str]) -> Callable[[str], str | None]:
    """Load the debug info file of a SavedModel, to look up the source lines of nodes.

    Returns:
      A function that takes "node" or "node@function" and returns "file:number", or None if the
      line is unknown. If the file is missing or damaged, the function always returns None.
    """
    proto = GraphDebugInfo()
    path = tf.io.gfile.join(os.fspath(directory), FILE)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            proto.ParseFromString(file.read())
    except (tf.errors.OpError, DecodeError):
        # Source lines only improve error messages, so a missing or damaged file is no error.
        return lambda node: None
    lines = {name: _format_frame(proto, trace) for name, trace in proto.name_to_trace_id.items()}

    def find_line(node: str) -> str | None:
        return lines.get(node) or lines.get(node.partition("@")[0])

    return find_line


def _format_frame(proto: Any, trace: int) -> str | None:
    """Return "file:number" for the last stack frame of a trace in a GraphDebugInfo."""
    frames = proto.traces_by_id[trace].frame_id
    if not frames:
        return None
    frame = proto.frames_by_id[frames[-1]]
    if frame.file_index >= len(proto.files):
        return None
    return f"{proto.files[frame.file_index]}:{frame.line}"


def _operations_on_tpu(graph: Any) -> Iterator[tuple[Any, str]]:
    """Yield each operation in a TPU computation, and the name of the function that contains it."""
    pending = [(graph, "", False)]
    visited = set()
    while pending:
        scope, function, is_on_tpu = pending.pop(0)
        for operation in scope.get_operations():
            is_member = is_on_tpu or _is_replicated(operation)
            if is_member:
                yield operation, function
            for name in _called_functions(operation):
                called = _function_graph(scope, name) or _function_graph(graph, name)
                is_called_on_tpu = is_member or operation.type == "TPUPartitionedCall"
                if called is not None and (name, is_called_on_tpu) not in visited:
                    visited.add((name, is_called_on_tpu))
                    pending.append((called, name, is_called_on_tpu))


def _is_replicated(operation: Any) -> bool:
    try:
        return bool(operation.get_attr("_tpu_replicate"))
    except ValueError:
        return False


def _called_functions(operation: Any) -> Iterator[str]:
    """Yield the names of the functions that an operation's attributes refer to."""
    for attribute in operation.op_def.attr:
        if attribute.type == "func":
            yield operation.get_attr(attribute.name).name
        elif attribute.type == "list(func)":
            yield from (function.name for function in operation.get_attr(attribute.name))


def _function_graph(scope: Any, name: str) -> Any:
    """Return the FuncGraph of a function; None if the process has only the FunctionDef."""
    # Do not rebuild a graph from the FunctionDef: its operations would have no tracebacks of the
    # user's code.
    function = tensorflow_internals.get_graph_functions(scope).get(name)
    return tensorflow_internals.get_traced_graph(function)


def _find_user_line(operation: Any) -> SourceLine | None:
    # An operation of a function that was read from a file has no traceback, so its line is unknown.
    for frame in reversed(operation.traceback or ()):
        if not frame.filename.startswith(_LIBRARY_PREFIXES) and not frame.filename.startswith("<"):
            return SourceLine(_shorten_path(frame.filename), frame.lineno, frame.name)
    return None


def _shorten_path(file: str) -> str:
    """Return a path in the working directory as a relative path, and any other path unchanged."""
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative
