"""The order of reads and updates of variables survives the rewriting of control inputs."""

import pytest
import tensorflow as tf

from tpuserve.export.conversion.analysis import flattening
from tpuserve.lowering.ir import graph_ir


@pytest.mark.parametrize("kind", ["read", "gather", "branch"])
def test_an_update_waits_for_the_reads_before_it(kind: str) -> None:
    @tf.function(autograph=False)
    def branch(value: tf.Variable, x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x > 0, lambda: value + x, lambda: x)

    with tf.Graph().as_default() as graph:
        variable = tf.Variable([1.0, 2.0], name="v")
        step, x = tf.constant([1.0, 1.0]), tf.compat.v1.placeholder(tf.float32, [])
        reads = {
            "read": lambda: variable.read_value(),
            "gather": lambda: tf.gather(variable, [1]),
            "branch": lambda: branch(variable, x),
        }
        read = reads[kind]()
        with tf.control_dependencies([read]):
            update = variable.assign_add(step, read_value=False)
    definition = graph.as_graph_def()
    library = {function.signature.name: function for function in definition.library.function}
    ordered = flattening.order_effects(graph_ir.from_node_defs(definition.node), library)
    waits_for = {ordered.nodes[name].op for name in ordered.nodes[update.name].controls}
    operations = {"read": "ReadVariableOp", "gather": "ResourceGather"}
    assert operations.get(kind, "StatefulPartitionedCall") in waits_for
