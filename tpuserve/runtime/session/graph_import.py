"""A prepared metagraph → a session with the graph in it, initialised.

TensorFlow's own loader makes a Python object of every node, which takes longer than all the rest
and which nobody asks for.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, op_def_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import importer

from tpuserve.graph.segments import GraphSegment
from tpuserve.runtime.load_plan import LoadPlan

_VERSION = re.compile(r"(\d+)\.(\d+)")


class GraphHandles:
    """The nodes of a graph that may be asked for; name → what the runtime knows it by."""

    def __init__(self) -> None:
        """Knows none yet."""
        self._found: dict[str, Any] = {}

    def retain(self, names: Iterable[str], operations: Iterable[Any]) -> None:
        """Adds some nodes."""
        self._found.update(zip(names, operations, strict=True))

    def operation(self, name: str) -> Any:
        """A node.

        Raises:
          ValueError: the graph has no such node.
        """
        found = self._found.get(name)
        if found is None:
            raise ValueError(f"the graph has no node {name}")
        return found

    def output(self, name: str, index: int) -> Any:
        """A node's output."""
        made = c_api.TF_Output()
        made.oper, made.index = self.operation(name), index
        return made

    def tensor(self, name: str) -> Any:
        """An output by the name of its tensor, "y:0"."""
        node, _, index = name.partition(":")
        return self.output(node, int(index or 0))


def import_graph(graph: Any, prepared: LoadPlan) -> GraphHandles:
    """Puts the nodes into an empty tf.Graph, which Python then knows nothing of.

    Raises:
      tf.errors.OpError, ValueError: the nodes make no graph.
    """
    handles = GraphHandles()
    for piece in prepared.pieces:
        import_segment(graph, piece, handles, _later_ops(prepared))
    return handles


def initialise_session(session: Any, prepared: LoadPlan) -> None:
    """Restores the variables and runs the initialisation of a session with that graph.

    Raises:
      tf.errors.OpError: files are missing or damaged, or an op fails.
    """
    if prepared.restore_op:
        fed = {prepared.filename_tensor: prepared.variables}
        _run(session, prepared.restore_op, fed)
    if prepared.init_op:
        _run(session, prepared.init_op, prepared.assets)


def _run(session: Any, operation: str, fed: Mapping[str, str]) -> None:
    options = config_pb2.CallableOptions(feed=list(fed), target=[operation])
    # -1 runs it in the calling thread: the others are for requests.
    options.run_options.inter_op_thread_pool = -1
    run = session._make_callable_from_options(options)
    run(*[np.array(value.encode(), object) for value in fed.values()])


def import_segment(
    graph: Any, piece: GraphSegment, handles: GraphHandles, later_ops: bytes = b""
) -> None:
    """Puts the nodes of a piece into a tf.Graph, after those that it reads.

    Args:
      handles: what is there of earlier pieces; what is kept of this one is added.
      later_ops: the serialised OpList of a later TensorFlow that has written the graph.
    """
    options = c_api.TF_NewImportGraphDefOptions()
    buffer = c_api.TF_NewBufferFromString(_content(piece, later_ops))
    results = None
    try:
        # TensorFlow's version 2 takes such a wish for a hint.
        c_api.TF_ImportGraphDefOptionsSetValidateColocationConstraints(options, False)
        for name, index in piece.inputs:
            output = handles.output(name, index)
            c_api.TF_ImportGraphDefOptionsAddInputMapping(options, name, index, output)
        for name in piece.controls:
            operation = handles.operation(name)
            c_api.TF_ImportGraphDefOptionsRemapControlDependency(options, name, operation)
        for name in piece.retained:
            c_api.TF_ImportGraphDefOptionsAddReturnOperation(options, name)
        with graph._c_graph.get() as c_graph:
            results = c_api.TF_GraphImportGraphDefWithResults(c_graph, buffer, options)
        handles.retain(piece.retained, c_api.TF_ImportGraphDefResultsReturnOperations(results))
    finally:
        if results is not None:
            c_api.TF_DeleteImportGraphDefResults(results)
        c_api.TF_DeleteBuffer(buffer)
        c_api.TF_DeleteImportGraphDefOptions(options)


def _later_ops(prepared: LoadPlan) -> bytes:
    is_later = _version(prepared.written_by) > _version(tf.__version__)
    return prepared.producer_ops if is_later else b""


def _content(piece: GraphSegment, later_ops: bytes) -> bytes:
    """The GraphDef of a piece, without what only a later TensorFlow knows and can do without."""
    if not later_ops:
        return piece.content
    graph = graph_pb2.GraphDef.FromString(piece.content)
    importer._RemoveDefaultAttrs(op_def_pb2.OpList.FromString(later_ops), graph)
    return bytes(graph.SerializeToString())


def _version(text: str) -> tuple[int, ...]:
    match = _VERSION.match(text)
    return tuple(map(int, match.groups())) if match else (0, 0)
