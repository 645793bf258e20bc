"""Plans the load of a metagraph into a session.

A server runs this module in a subprocess in which only TensorFlow's protobuf message classes can be
imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuserve.graph.loops import has_loop, has_op
from tpuserve.graph.pruning import prune_metagraph
from tpuserve.graph.references import node_name
from tpuserve.graph.segments import GraphSegment, split_graph
from tpuserve.graph.static_cost import has_static_cost
from tpuserve.lowering import lower
from tpuserve.saved_model import initialisation
from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection

# The path prefix of the variables files. Source: tensorflow/cc/saved_model/constants.h.
_VARIABLES = ("variables", "variables")
SIZE_CHECKED_OPS = frozenset(
    ("Conv2DBackpropInput", "Conv3DBackpropInputV2", "TensorScatterUpdate")
)
"""The kernels that end the process on sizes or indices that contradict other inputs."""


@dataclass(frozen=True)
class SessionPlan:
    """A metagraph that is prepared for loading into a session.

    Attributes:
      static_cost_signatures: names of the signatures whose run time depends only on the shapes of
        their inputs.
      checks_sizes: whether the graph has a kernel that ends the process where integers that a
        client sends, such as sizes and indices, contradict other inputs.
      restore_op: name of the op that restores the variables; empty if there are no variables.
      init_op: name of the op that fills tables after the variables are restored; empty for none.
      assets: name of a tensor → path of the asset file to feed to the tensor for `init_op`.
      tensorflow_version: the version of TensorFlow that wrote the graph; empty if unknown.
      op_list: the serialised OpList with the definitions that the ops of the graph have in
        `tensorflow_version`; empty if unknown.
      segments: the graph without unused nodes, with TPU ops replaced by CPU ops if necessary. It is
        split into parts that are imported one after the other.
    """

    static_cost_signatures: frozenset[str]
    has_loop: bool
    checks_sizes: bool
    restore_op: str
    filename_tensor: str
    variables_path: str
    init_op: str
    assets: Mapping[str, str]
    tensorflow_version: str
    op_list: bytes
    segments: tuple[GraphSegment, ...] = field(repr=False)


def make_session_plan(
    meta_graph: Any,
    directory: Path,
    choice: MetaGraphSelection,
    signatures: Mapping[str, Signature],
) -> SessionPlan:
    """Prepare a metagraph for a session, and return the plan of its load.

    If `choice.lowered` is true, TPU ops are replaced by CPU ops.
    """
    if choice.lowered:
        lowered = lower(meta_graph.graph_def, compiled=choice.compiled)
        meta_graph.graph_def.CopyFrom(lowered)
    prune_metagraph(meta_graph)
    graph, saver, info = meta_graph.graph_def, meta_graph.saver_def, meta_graph.meta_info_def
    return SessionPlan(
        static_cost_signatures=_static_cost_signatures(graph, signatures),
        has_loop=has_loop(graph),
        checks_sizes=has_op(graph, SIZE_CHECKED_OPS),
        restore_op=node_name(saver.restore_op_name),
        filename_tensor=saver.filename_tensor_name,
        variables_path=str(directory.joinpath(*_VARIABLES)),
        init_op=initialisation.find_init_op(meta_graph, directory),
        assets=initialisation.find_assets(meta_graph, directory),
        tensorflow_version=info.tensorflow_version,
        op_list=info.stripped_op_list.SerializeToString(),
        segments=tuple(split_graph(graph, _signature_nodes(signatures))),
    )


def _static_cost_signatures(graph: Any, signatures: Mapping[str, Signature]) -> frozenset[str]:
    return frozenset(
        name
        for name, signature in signatures.items()
        if has_static_cost(graph, [output.name for output in signature.outputs.values()])
    )


def _signature_nodes(signatures: Mapping[str, Signature]) -> set[str]:
    return {
        node_name(spec.name)
        for signature in signatures.values()
        for spec in (*signature.inputs.values(), *signature.outputs.values())
    }
