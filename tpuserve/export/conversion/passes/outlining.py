"""Turns the TPU computation of a signature into a function that TPUPartitionedCall calls.

The function and its calls have the same form as in an export of an Estimator with
`export_saved_model_api_version` V2, which `tpuserve.export.tpu` builds.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpuserve.export.tpu.batching import BatchConfig
from tpuserve.graph.graph_walk import (
    CLUSTER_ATTRIBUTE,
    REPLICATE_METADATA,
    REPLICATED_OUTPUT,
    TPU_CALL,
)
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.saved_model.batch_functions import OP as BATCH_FUNCTION

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

    from tpuserve.lowering.ir.op_defs import Library

_CORE_DEVICE = "/device:TPU_REPLICATED_CORE:0"
_SELECTOR = "TPUOrdinalSelector"
# Names of the attributes that a node loses when it is copied into a TPU function. Their values
# refer to other nodes of the original graph, or say how a CPU runs that graph.
_DROPPED_ATTRIBUTES = ("_class", "_output_shapes", "_XlaMustCompile", "_lower_using_switch_merge")


def make_tpu_function(body: GraphIR, name: str, library: "Library") -> "FunctionDef":
    """Return a FunctionDef that runs a graph as one XLA cluster on one TPU core.

    Args:
      body: The graph. The names of its nodes must not begin with "cluster_tpu/".
    """
    types = graph_ir.value_types(body, library)
    cluster = f"cluster_{name}"
    pivot, metadata = f"cluster_tpu/{name}/pivot", f"cluster_tpu/{name}/metadata"
    nodes = [
        Node(pivot, _define("NoOp", _pivot_for_cluster=cluster)),
        Node(
            metadata,
            _define(
                REPLICATE_METADATA,
                num_replicas=1,
                use_spmd_for_xla_partitioning=True,
                **{CLUSTER_ATTRIBUTE: cluster},
            ),
            controls=[pivot],
        ),
        *(_place(node, cluster, metadata) for node in body.nodes.values()),
    ]
    results = []
    for index, value in enumerate(body.results):
        inner, outer, result = (
            f"cluster_tpu/{name}/{kind}_{index}" for kind in ("computed", "replicated", "result")
        )
        dtype = tf.as_dtype(types[value])
        computed = _define(
            "Identity", T=dtype, _tpu_output_identity=True, **{CLUSTER_ATTRIBUTE: cluster}
        )
        computed.device = _CORE_DEVICE
        nodes += [
            Node(inner, computed, [value]),
            Node(outer, _define(REPLICATED_OUTPUT, T=dtype, num_replicas=1), [Value(inner)]),
            Node(result, _define("Identity", T=dtype), [Value(outer)]),
        ]
        results.append(Value(result))
    graph = GraphIR(graph_ir.topological_order(nodes), body.arguments, results=results)
    return graph_ir.to_function_def(graph, name, library)


def set_argument_shapes(
    function: "FunctionDef", shapes: Iterable[tuple[int | None, ...] | None]
) -> None:
    """Record the static shapes of a function's arguments in its FunctionDef, in place.

    XLA needs these shapes to compile for a TPU, and TensorFlow cannot infer some of them, such as
    the shape of the result of a table lookup.

    Args:
      shapes: The shape of each argument. None stands for an unknown rank, which is not recorded.
    """
    for index, shape in enumerate(shapes):
        if shape is not None:
            attribute = function.arg_attr[index].attr["_output_shapes"]
            attribute.list.shape.append(tf.TensorShape(shape).as_proto())


def make_tpu_call(
    function: "FunctionDef", arguments: Sequence[Value], name: str, controls: Sequence[str] = ()
) -> list[Node]:
    """Return nodes that call a TPU function: a TPUOrdinalSelector and a TPUPartitionedCall.

    The selector chooses the TPU core, so that successive executions run on successive cores.

    Args:
      controls: Names of the nodes that must run before the call.
    """
    signature = function.signature
    call = _define(TPU_CALL, autotuner_thresh=0)
    call.attr["f"].func.name = signature.name
    _set_types(call, "Tin", [argument.type for argument in signature.input_arg])
    _set_types(call, "Tout", [result.type for result in signature.output_arg])
    selector = f"{name}/ordinal"
    return [
        Node(selector, _define(_SELECTOR)),
        Node(name, call, [*arguments, Value(selector)], list(controls)),
    ]


def make_batch_function(function: "FunctionDef", name: str, library: "Library") -> "FunctionDef":
    """Return the FunctionDef that a BatchFunction runs for each batch.

    It passes its arguments to a TPU function, and returns the results of this function.
    """
    arguments = {argument.name: argument.type for argument in function.signature.input_arg}
    nodes = make_tpu_call(function, [Value(argument) for argument in arguments], "tpu_call")
    results = [Value("tpu_call", index) for index in range(len(function.signature.output_arg))]
    graph = GraphIR({node.name: node for node in nodes}, arguments, results=results)
    return graph_ir.to_function_def(graph, name, library)


def make_batch_call(
    function: "FunctionDef",
    arguments: Sequence[Value],
    num_captured: int,
    name: str,
    config: BatchConfig,
    controls: Sequence[str] = (),
) -> Node:
    """Return a BatchFunction node, which merges several requests into a batch.

    Args:
      num_captured: Number of arguments, at the end of `arguments`, that are the same for all
        requests, such as handles of variables. They are not batched.
      controls: Names of the nodes that must run before the BatchFunction.
    """
    signature = function.signature
    types = [argument.type for argument in signature.input_arg]
    count = len(types) - num_captured
    call = _define(
        BATCH_FUNCTION,
        num_batch_threads=config.num_batch_threads,
        max_batch_size=config.max_batch_size,
        batch_timeout_micros=config.batch_timeout_micros,
        max_enqueued_batches=config.max_enqueued_batches,
        enable_large_batch_splitting=True,
    )
    # BatchFunctions with the same shared name share one queue. The name of the node is unique, so
    # each BatchFunction gets a queue of its own.
    call.attr["shared_name"].s = name.encode()
    call.attr["f"].func.name = signature.name
    call.attr["allowed_batch_sizes"].list.i.extend(config.allowed_batch_sizes or ())
    call.attr["allowed_batch_sizes"].list.SetInParent()
    _set_types(call, "Tin", types[:count])
    _set_types(call, "Tcaptured", types[count:])
    _set_types(call, "Tout", [result.type for result in signature.output_arg])
    return Node(name, call, list(arguments), list(controls))


def _place(node: Node, cluster: str, metadata: str) -> Node:
    """Return a copy of a node, as a member of an XLA cluster."""
    definition = type(node.definition)()
    definition.CopyFrom(node.definition)
    definition.device = ""
    for attribute in _DROPPED_ATTRIBUTES:
        definition.attr.pop(attribute, None)
    definition.attr[CLUSTER_ATTRIBUTE].s = cluster.encode()
    # Give a node without inputs a control input from the cluster's TPUReplicateMetadata node, as
    # tpu.rewrite does. Otherwise it would not depend on any node of the cluster.
    controls = node.controls if node.inputs else [*node.controls, metadata]
    return dataclasses.replace(node, definition=definition, controls=controls)


def _define(op: str, **attributes: Any) -> Any:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    definition = NodeDef(op=op)
    for name, value in attributes.items():
        if isinstance(value, bool):
            definition.attr[name].b = value
        elif isinstance(value, int):
            definition.attr[name].i = value
        elif isinstance(value, str):
            definition.attr[name].s = value.encode()
        else:
            definition.attr[name].type = value.as_datatype_enum
    return definition


def _set_types(definition: Any, name: str, types: Sequence[int]) -> None:
    definition.attr[name].list.SetInParent()
    definition.attr[name].list.type.extend(types)
