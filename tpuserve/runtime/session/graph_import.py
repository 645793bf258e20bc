"""Imports the graph of a model into a session and initialises it, through TensorFlow's C API.

TensorFlow's own SavedModel loader creates a Python object for every node.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, op_def_pb2
from tensorflow.core.protobuf import config_pb2

from tpuserve import tensorflow_internals
from tpuserve.graph.segments import GraphSegment
from tpuserve.runtime.session.session_plan import SessionPlan
from tpuserve.tensorflow_internals import c_api

_VERSION = re.compile(r"(\d+)\.(\d+)")


class GraphHandles:
    """The C API handles of some nodes of a graph, such as those that signatures feed and fetch."""

    def __init__(self) -> None:
        self._operations: dict[str, Any] = {}

    def retain(self, names: Iterable[str], operations: Iterable[Any]) -> None:
        """Store handles of nodes."""
        self._operations.update(zip(names, operations, strict=True))

    def operation(self, name: str) -> Any:
        """Return the TF_Operation of a node."""
        operation = self._operations.get(name)
        if operation is None:
            raise ValueError(f"the graph has no node {name}")
        return operation

    def output(self, name: str, index: int) -> Any:
        """Return an output of a node, by its index, as a TF_Output."""
        output = c_api.TF_Output()
        output.oper, output.index = self.operation(name), index
        return output

    def tensor(self, name: str) -> Any:
        """Return the TF_Output with a tensor name, for example "y:0"."""
        node, _, index = name.partition(":")
        return self.output(node, int(index or 0))


def import_graph(graph: Any, plan: SessionPlan) -> GraphHandles:
    """Add the graph of a plan to an empty tf.Graph, without Python objects for the nodes.

    Returns:
      The handles of the nodes that the plan retains, such as those that signatures feed and fetch.
    """
    handles = GraphHandles()
    op_list = _newer_op_list(plan)
    for segment in plan.segments:
        import_segment(graph, segment, handles, op_list)
    return handles


def initialise_session(session: Any, plan: SessionPlan) -> None:
    """Restore the variables and run the initialisation op, in a session with the imported graph."""
    if plan.restore_op:
        feeds = {plan.filename_tensor: plan.variables_path}
        _run_target(session, plan.restore_op, feeds)
    if plan.init_op:
        _run_target(session, plan.init_op, plan.assets)


def _run_target(session: Any, operation: str, feeds: Mapping[str, str]) -> None:
    options = config_pb2.CallableOptions(feed=list(feeds), target=[operation])
    # The inter-op thread pool -1 means that the ops run in the calling thread. So the threads of
    # the pools stay free for requests.
    options.run_options.inter_op_thread_pool = -1
    run = tensorflow_internals.make_session_callable(session, options)
    run(*[np.array(value.encode(), object) for value in feeds.values()])


def import_segment(
    graph: Any, segment: GraphSegment, handles: GraphHandles, op_list: bytes = b""
) -> None:
    """Add one segment of a large graph to a tf.Graph; a large graph is imported in segments.

    Args:
      op_list: the serialised OpList of the TensorFlow that wrote the graph, if that is newer than
        the installed TensorFlow; otherwise empty.
    """
    options = c_api.TF_NewImportGraphDefOptions()
    buffer = c_api.TF_NewBufferFromString(_segment_graph(segment, op_list))
    results = None
    try:
        # Do not validate colocation constraints, which are only hints in TensorFlow 2.
        c_api.TF_ImportGraphDefOptionsSetValidateColocationConstraints(options, False)
        for name, index in segment.inputs:
            output = handles.output(name, index)
            c_api.TF_ImportGraphDefOptionsAddInputMapping(options, name, index, output)
        for name in segment.controls:
            operation = handles.operation(name)
            c_api.TF_ImportGraphDefOptionsRemapControlDependency(options, name, operation)
        for name in segment.retained_nodes:
            c_api.TF_ImportGraphDefOptionsAddReturnOperation(options, name)
        with tensorflow_internals.get_c_graph(graph).get() as c_graph:
            results = c_api.TF_GraphImportGraphDefWithResults(c_graph, buffer, options)
        handles.retain(
            segment.retained_nodes, c_api.TF_ImportGraphDefResultsReturnOperations(results)
        )
    finally:
        if results is not None:
            c_api.TF_DeleteImportGraphDefResults(results)
        c_api.TF_DeleteBuffer(buffer)
        c_api.TF_DeleteImportGraphDefOptions(options)


def _newer_op_list(plan: SessionPlan) -> bytes:
    is_newer = _parse_version(plan.tensorflow_version) > _parse_version(tf.__version__)
    return plan.op_list if is_newer else b""


def _segment_graph(segment: GraphSegment, op_list: bytes) -> bytes:
    if not op_list:
        return segment.content
    graph = graph_pb2.GraphDef.FromString(segment.content)
    tensorflow_internals.remove_default_attrs(op_def_pb2.OpList.FromString(op_list), graph)
    return bytes(graph.SerializeToString())


def _parse_version(text: str) -> tuple[int, ...]:
    match = _VERSION.match(text)
    return tuple(map(int, match.groups())) if match else (0, 0)
