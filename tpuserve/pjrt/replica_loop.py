"""Finds the loop in the graph of a TPU program, and analyses the arguments of its body.

Each replica of a TPU runs this loop, in which one iteration is one training step.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import UnsupportedOnTpu
from tpuserve.graph import batch_rows, row_sharding
from tpuserve.graph.graph_walk import (
    CLUSTER_ATTRIBUTE,
    REPLICATE_METADATA,
    REPLICATED_INPUT,
    skip_identities,
)
from tpuserve.graph.references import data_inputs, node_name, tensor_name
from tpuserve.graph.row_sharding import RowSharding
from tpuserve.saved_model import dtypes
from tpuserve.stablehlo.abstract_tensor import VariableSpec, shape_from_proto
from tpuserve.stablehlo.function_graphs import FunctionBody
from tpuserve.tensorflow_internals import tensor_util


@dataclass(frozen=True)
class LoopArguments:
    """The arguments of the body of the loop that each replica runs, grouped by their meaning.

    The body is one training step. An argument is identified by the name of its tensor in the body.

    Attributes:
      row_shardings: argument that is the handle of an embedding table whose rows are divided among
        the replicas → which replica stores which rows.
      counters: the arguments, int32 [], that count the finished steps.
      counts: the arguments, int32 [], that hold the number of steps of the whole loop.
      resources: argument that is the handle of another resource, such as a summary writer → the
        name of the handle in the program's graph.
      batch_rows: the arguments that are handles of variables whose first dimension is the number of
        embedding ids in a batch, which is unknown.
    """

    variables: dict[str, VariableSpec]
    row_shardings: dict[str, RowSharding]
    counters: list[str]
    counts: list[str]
    constants: dict[str, Any]
    batch_rows: list[str]
    resources: dict[str, str]
    iterations: str

    @classmethod
    def from_loop(cls, loop: Any, body: FunctionBody, graph: Any) -> "LoopArguments":
        """Find out what each argument of a loop's body means.

        Raises:
          UnsupportedOnTpu: the body reads a tensor from outside of the loop, or a variable has no
            static shape.
        """
        nodes = {node.name: node for node in graph.node}
        used = {tensor_name(reference) for node in body.nodes for reference in data_inputs(node)}
        arguments = cls({}, {}, [], [], {}, [], {}, "")
        iterations = ""
        rows = zip(body.inputs, body.outputs, loop.input, loop.attr["T"].list.type, strict=False)
        for name, output, initial, dtype in rows:
            producer = _find_producer(initial, nodes)
            if producer.op == "VarHandleOp":
                variable = VariableSpec(
                    producer.attr["shared_name"].s.decode() or producer.name,
                    tf.as_dtype(producer.attr["dtype"].type),
                    shape_from_proto(producer.attr["shape"].shape),
                )
                if batch_rows.ATTRIBUTE in producer.attr:
                    arguments.batch_rows.append(name)
                elif variable.shape is None or None in variable.shape:
                    raise UnsupportedOnTpu(
                        f"the step of a replica has the variable {variable.name!r} of unknown "
                        f"shape, and a variable on PJRT devices has one shape. Give the variable a "
                        f"static shape, or emulate a TPU: TPUSERVE_TPU_RUNTIME=emulated."
                    )
                arguments.variables[name] = variable
                if row_sharding.ATTRIBUTE in producer.attr:
                    assert variable.shape is not None
                    assert variable.shape[0] is not None
                    arguments.row_shardings[name] = RowSharding(
                        producer.attr[row_sharding.ATTRIBUTE].s.decode(),
                        variable.shape[0],
                        _count_replicas(loop, graph),
                    )
            elif producer.op == REPLICATED_INPUT and len(set(producer.input)) > 1:
                raise UnsupportedOnTpu(
                    f"the step of a replica uses {producer.name!r}, of which each replica has its "
                    f"own, and all replicas on PJRT devices have the same variables. Emulate a "
                    f"TPU: TPUSERVE_TPU_RUNTIME=emulated."
                )
            elif dtype == dtypes.RESOURCE:
                arguments.resources[name] = tensor_name(skip_identities(initial, nodes))
            elif output != name:
                arguments.counters.append(name)
            elif producer.op == "Const":
                value = tensor_util.MakeNdarray(producer.attr["value"].tensor)
                arguments.constants[name] = value
            elif producer.op == REPLICATED_INPUT:
                iterations = tensor_name(producer.input[0])
                arguments.counts.append(name)
            elif name in used:
                raise outside_error(producer)
        return dataclasses.replace(arguments, iterations=iterations)


def outside_error(producer: Any) -> UnsupportedOnTpu:
    """Return the error about a step that uses the output of a node outside of it."""
    return UnsupportedOnTpu(
        f"the step of a replica reads {producer.op} {producer.name!r}, which is outside of the "
        f"step. Compute the tensor in model_fn, or feed it with the batch."
    )


def find_loop(graph: Any) -> Any:
    """Return the While node of the loop that each replica of a TPU runs."""
    loops = [node for node in graph.node if node.op == "While" and CLUSTER_ATTRIBUTE in node.attr]
    if len(loops) != 1:
        raise UnsupportedOnTpu(
            f"the graph has {len(loops)} loops on the replicas of a TPU, and must have one. Pass "
            f"the graph of a TPUEstimator's training, evaluation or prediction."
        )
    return loops[0]


def _count_replicas(loop: Any, graph: Any) -> int:
    """Return the number of replicas that run a loop, from its TPUReplicateMetadata node."""
    cluster = loop.attr[CLUSTER_ATTRIBUTE].s
    (count,) = (
        node.attr["num_replicas"].i
        for node in graph.node
        if node.op == REPLICATE_METADATA and node.attr[CLUSTER_ATTRIBUTE].s == cluster
    )
    return int(count)


def _find_producer(reference: str, nodes: Mapping[str, Any]) -> Any:
    return nodes[node_name(skip_identities(reference, nodes))]
