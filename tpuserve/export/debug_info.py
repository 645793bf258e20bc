"""Which line of the user's code made a node, kept for the nodes of TPU computations.

It is TensorFlow's own file, a GraphDebugInfo at debug/saved_model_debug_info.pb, with one frame a
node: the innermost that is in no installed package. So it stays small, and names what its reader
can change.
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

# They are many, and no compiler refuses them.
_LEFT_OUT = frozenset(("Const", "Identity", "IdentityN", "NoOp", "Placeholder", "ReadVariableOp"))

_OURS = Path(__file__).parent.parent.parent
_NOT_USERS = tuple(
    f"{each}{os.sep}"
    for each in (
        *(_OURS / each for each in ("tpuserve", "trainer", "server")),
        # The standard library, with the site-packages of an environment that has its own.
        *(sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")),
        Path(tf.__file__).parent.parent,
    )
)


@dataclass(frozen=True)
class SourceLine:
    """A line of code.

    Attributes:
      file: its path, from the working directory where it lies below that.
      number: from 1.
      function: that it is in.
    """

    file: str
    number: int
    function: str


def find_source_lines(graph: Any) -> dict[str, SourceLine]:
    """Node → line, for the nodes of all TPU computations of a graph that have a line.

    A node is named as in its function. Where two functions have a node of one name from different
    lines, all but the first are named "node@function".

    Args:
      graph: a tf.Graph. Functions that TensorFlow's Defun made remember no lines.
    """
    found: dict[str, SourceLine] = {}
    for operation, function in _on_tpu(graph):
        is_left_out = operation.type in _LEFT_OUT or operation.type.startswith("TPU")
        line = None if is_left_out else _line(operation)
        if line is not None and found.setdefault(operation.name, line) != line:
            found[f"{operation.name}@{function}"] = line
    return found


def write_debug_info(directory: str, lines: Mapping[str, SourceLine]) -> None:
    """Writes the lines beside a SavedModel; nothing where there are none."""
    if not lines:
        return
    proto = GraphDebugInfo()
    files: dict[str, int] = {}
    numbers: dict[SourceLine, int] = {}
    for node, line in lines.items():
        if line not in numbers:
            numbers[line] = len(numbers) + 1
            frame = proto.frames_by_id[numbers[line]]
            frame.file_index = files.setdefault(line.file, len(files))
            frame.line = line.number
            frame.func = line.function
            proto.traces_by_id[numbers[line]].frame_id.append(numbers[line])
        proto.name_to_trace_id[node] = numbers[line]
    proto.files.extend(files)
    path = tf.io.gfile.join(directory, FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(proto.SerializeToString(deterministic=True))


def load_line_lookup(directory: str | os.PathLike[str]) -> Callable[[str], str | None]:
    """A function of a node's name, or "node@function", that gives "file:number" or None.

    Reads what any TensorFlow wrote. Without the file, or with a damaged one, no node has a line.
    """
    proto = GraphDebugInfo()
    path = tf.io.gfile.join(os.fspath(directory), FILE)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            proto.ParseFromString(file.read())
    except (tf.errors.OpError, DecodeError):
        # A line is but a help: what wants it goes on without.
        return lambda node: None
    lines = {name: _shown(proto, number) for name, number in proto.name_to_trace_id.items()}

    def find(node: str) -> str | None:
        return lines.get(node) or lines.get(node.partition("@")[0])

    return find


def _shown(proto: Any, trace: int) -> str | None:
    frames = proto.traces_by_id[trace].frame_id
    if not frames:
        return None
    frame = proto.frames_by_id[frames[-1]]
    if frame.file_index >= len(proto.files):
        return None
    return f"{proto.files[frame.file_index]}:{frame.line}"


def _on_tpu(graph: Any) -> Iterator[tuple[Any, str]]:
    """The operations of TPU computations, each with the name of the function it is in."""
    pending = [(graph, "", False)]
    seen = set()
    while pending:
        scope, function, is_on_tpu = pending.pop(0)
        for operation in scope.get_operations():
            is_member = is_on_tpu or _is_replicated(operation)
            if is_member:
                yield operation, function
            for name in _functions_of(operation):
                called = _graph_of(scope, name) or _graph_of(graph, name)
                is_called_on_tpu = is_member or operation.type == "TPUPartitionedCall"
                if called is not None and (name, is_called_on_tpu) not in seen:
                    seen.add((name, is_called_on_tpu))
                    pending.append((called, name, is_called_on_tpu))


def _is_replicated(operation: Any) -> bool:
    try:
        return bool(operation.get_attr("_tpu_replicate"))
    except ValueError:
        return False


def _functions_of(operation: Any) -> Iterator[str]:
    for attribute in operation.op_def.attr:
        if attribute.type == "func":
            yield operation.get_attr(attribute.name).name
        elif attribute.type == "list(func)":
            yield from (each.name for each in operation.get_attr(attribute.name))


def _graph_of(scope: Any, name: str) -> Any:
    # A graph made anew from a definition would have the lines of this very call.
    return getattr(tensorflow_internals.get_graph_functions(scope).get(name), "_cached_graph", None)


def _line(operation: Any) -> SourceLine | None:
    # An operation of a function that was read from a file has none.
    for frame in reversed(operation.traceback or ()):
        if not frame.filename.startswith(_NOT_USERS) and not frame.filename.startswith("<"):
            return SourceLine(_short(frame.filename), frame.lineno, frame.name)
    return None


def _short(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative
