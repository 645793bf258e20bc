"""A tf.Graph for runs with one replica, in which each sum over replicas is an identity."""

from typing import Any

import tensorflow as tf

from tpuserve.lowering.rules.op_table import op_spec
from trainer.execution.variable_values import VariableValueGraph
from trainer.tensorflow_internals import defined_function, get_private_attribute


class SingleReplicaGraph(VariableValueGraph):
    """A graph that replaces each sum over replicas by an identity.

    tf.compat.v1.tpu's CrossShardOptimizer and cross_replica_sum create CrossReplicaSum ops, which
    have kernels on TPUs only. With one replica, the sum equals the input.
    """

    def __init__(self) -> None:
        super().__init__()
        graph = tf.Graph()
        get_private_attribute(graph, "_add_function")
        get_private_attribute(graph, "_create_op_internal")

    def _create_op_internal(
        self,
        op_type: str,
        inputs: Any,
        dtypes: Any = None,
        input_types: Any = None,
        name: str | None = None,
        attrs: Any = None,
        op_def: Any = None,
        compute_device: bool = True,
    ) -> Any:
        if op_spec(op_type).is_reduction:
            op_type, inputs, op_def = "Identity", list(inputs)[:1], None
            input_types = list(input_types)[:1] if input_types is not None else None
            attrs = {"T": attrs["T"]}
        return super()._create_op_internal(
            op_type, inputs, dtypes, input_types, name, attrs, op_def, compute_device
        )

    def _add_function(self, function: Any) -> None:
        definition = function.cached_definition
        if any(op_spec(node.op).is_reduction for node in definition.node_def):
            function = defined_function._from_definition(_replace_sums(definition))
        super()._add_function(function)


def _replace_sums(definition: Any) -> Any:
    copy = type(definition)()
    copy.CopyFrom(definition)
    for node in copy.node_def:
        if op_spec(node.op).is_reduction:
            node.op = "Identity"
            # Remove only the second input, the group assignment, because an Identity has one input.
            # The other inputs are control inputs, which stay.
            del node.input[1]
    return copy
