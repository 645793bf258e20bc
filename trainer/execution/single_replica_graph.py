"""A graph for a run with one replica, on any device."""

from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import defined_function

_SUM = "CrossReplicaSum"


class SingleReplicaGraph(tf.Graph):
    """A graph in which a sum over replicas is its own operand.

    tf.compat.v1.tpu's CrossShardOptimizer and cross_replica_sum make an op that only a TPU has a
    kernel for. Over one replica it is the identity, which takes its place as it is made, and in
    the bodies of functions (branches, loops) as they are added to the graph.
    """

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
        if op_type == _SUM:
            op_type, inputs, op_def = "Identity", list(inputs)[:1], None
            input_types = list(input_types)[:1] if input_types is not None else None
            attrs = {"T": attrs["T"]}
        return super()._create_op_internal(
            op_type, inputs, dtypes, input_types, name, attrs, op_def, compute_device
        )

    def _add_function(self, function: Any) -> None:
        definition = function.cached_definition
        if any(node.op == _SUM for node in definition.node_def):
            function = defined_function._from_definition(_without_sums(definition))
        super()._add_function(function)


def _without_sums(definition: Any) -> Any:
    changed = type(definition)()
    changed.CopyFrom(definition)
    for node in changed.node_def:
        if node.op == _SUM:
            node.op = "Identity"
            # The second input is the group assignment; control inputs stay.
            del node.input[1]
    return changed
