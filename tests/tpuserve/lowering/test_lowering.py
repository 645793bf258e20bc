import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tests import models
from tpuserve import tags
from tpuserve.errors import LoweringError, UnsupportedModel
from tpuserve.lowering import lower

v1 = tf.compat.v1


def graph_def(build: models.Build = models.half_plus_two) -> GraphDef:
    return models.metagraph(build, tags.SERVE_TPU).graph.as_graph_def(add_shapes=True)


def all_nodes(graph: GraphDef) -> list[NodeDef]:
    return [*graph.node, *(node for f in graph.library.function for node in f.node_def)]


def test_no_tpu_op_attribute_or_device_is_left() -> None:
    lowered = all_nodes(lower(graph_def()))
    assert not [node.op for node in lowered if "TPU" in node.op]
    assert not [name for node in lowered for name in node.attr if name.startswith("_tpu")]
    assert not [node.device for node in lowered if "TPU" in node.device]


def test_graph_passed_in_is_not_changed() -> None:
    graph = graph_def()
    before = graph.SerializeToString(deterministic=True)
    lower(graph)
    assert graph.SerializeToString(deterministic=True) == before


def test_an_unknown_op_is_told_with_what_to_do() -> None:
    graph = graph_def()
    graph.library.function[0].node_def.add(name="first", op="NobodysOp")
    with pytest.raises(UnsupportedModel, match="1 NobodysOp. Name the package or the library"):
        lower(graph)


def test_a_graph_without_tpu_ops_is_returned_equal() -> None:
    graph = models.metagraph(models.half_plus_two, tags.SERVE).graph.as_graph_def()
    assert lower(graph) == graph


def test_every_computation_must_compile_unless_compiled_is_false() -> None:
    def compiled(graph: GraphDef) -> list[str]:
        return [node.op for node in graph.node if "_XlaMustCompile" in node.attr]

    assert compiled(lower(graph_def())) == ["StatefulPartitionedCall"]
    assert compiled(lower(graph_def(), compiled=False)) == []


def test_clusters_around_an_outside_compilation_must_compile_and_results_agree() -> None:
    def build(x: tf.Tensor) -> dict[str, tf.Tensor]:
        text = v1.tpu.outside_compilation(tf.strings.as_string, x, precision=1)
        return {"text": text, "y": x * 2.0}

    lowered = lower(graph_def(build))
    (cluster,) = [node for node in all_nodes(lowered) if "_XlaMustCompile" in node.attr]
    (call,) = [node.name for node in lowered.node if node.op == "StatefulPartitionedCall"]
    assert call != cluster.name
    with tf.Graph().as_default(), v1.Session() as session:
        tf.graph_util.import_graph_def(lowered, name="")
        results = session.run([f"{call}:0", f"{call}:1"], {"x:0": [[1.5]]})
    assert results == [[[b"1.5"]], [[3.0]]]


def test_op_that_cannot_be_lowered_is_named_with_its_function() -> None:
    def build(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": v1.tpu.cross_replica_sum(x, name="sum_up")}

    with pytest.raises(LoweringError, match=r"op CrossReplicaSum \('sum_up' in function '.*tpu_"):
        lower(graph_def(build))


def test_call_of_a_missing_function_is_refused() -> None:
    graph = graph_def()
    del graph.library.function[:]
    with pytest.raises(LoweringError, match="which is not in the graph"):
        lower(graph)


def test_op_that_xla_cannot_compile_is_named_when_it_runs() -> None:
    def build(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.strings.to_number(tf.strings.as_string(x))}

    lowered = lower(graph_def(build))
    (call,) = [node.name for node in lowered.node if node.op == "StatefulPartitionedCall"]
    with tf.Graph().as_default(), v1.Session() as session:
        tf.graph_util.import_graph_def(lowered, name="")
        with pytest.raises(tf.errors.InvalidArgumentError, match="AsString"):
            session.run(f"{call}:0", {"x:0": np.ones([1, 1], np.float32)})


def test_string_result_of_a_computation_is_refused_by_name() -> None:
    def build(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"text": tf.strings.as_string(x)}

    with pytest.raises(LoweringError, match="returns the string .* which a TPU cannot hold"):
        lower(graph_def(build))


def test_attributes_that_an_export_removed_have_their_defaults() -> None:
    def build(x: tf.Tensor) -> dict[str, tf.Tensor]:
        best = v1.tpu.outside_compilation(tf.argmax, x * 2.0, axis=1)
        return {"best": tf.reduce_sum(tf.one_hot(best, 1) * x, axis=1)}

    graph = graph_def(build)
    (node,) = (node for node in all_nodes(graph) if node.op == "ArgMax")
    del node.attr["output_type"]
    with tf.Graph().as_default(), v1.Session() as session:
        (y,) = tf.import_graph_def(lower(graph), return_elements=["TPUPartitionedCall:0"])
        assert session.run(y, {"import/x:0": [[3.0], [4.0]]}).tolist() == [3.0, 4.0]


def test_computation_in_a_function_that_a_batch_function_calls_is_compiled() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], name="x")
        batched = tf.nondifferentiable_batch_function(1, 2, 0, [2], autograph=False)
        batched(lambda x: v1.tpu.rewrite(tf.sin, [x]))(x)
    lowered = lower(graph.as_graph_def(add_shapes=True))
    assert [node.op for node in all_nodes(lowered) if "_XlaMustCompile" in node.attr] == [
        "StatefulPartitionedCall"
    ]
    with tf.Graph().as_default(), v1.Session() as session:
        (y,) = tf.import_graph_def(lowered, return_elements=["batch/BatchFunction:0"])
        assert session.run(y, {"import/x:0": [0.0]}).tolist() == [0.0]
