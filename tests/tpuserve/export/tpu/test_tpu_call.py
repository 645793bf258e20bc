import pytest
import tensorflow as tf

from tests import models
from tpuserve import tags
from tpuserve.errors import ExportError
from tpuserve.export import on_tpu

v1 = tf.compat.v1


def test_the_whole_computation_is_one_call_on_a_core_chosen_at_run_time() -> None:
    graph = models.metagraph(models.half_plus_two, tags.SERVE_TPU).graph.as_graph_def()
    types = [node.op for node in graph.node]
    assert types.count("TPUPartitionedCall") == types.count("TPUOrdinalSelector") == 1
    assert "Mul" not in types
    (function,) = graph.library.function
    assert {"Mul", "AddV2", "TPUReplicateMetadata"} <= {node.op for node in function.node_def}


def test_variables_keep_their_names_and_stay_outside_of_the_call() -> None:
    graph = models.metagraph(models.half_plus_two, tags.SERVE_TPU).graph
    with graph.as_default():
        assert [variable.name for variable in v1.global_variables()] == ["half:0", "two:0"]
        assert all(variable.graph is graph for variable in v1.global_variables())


def test_results_keep_their_nest_and_shapes() -> None:
    def computation(features: dict[str, tf.Tensor]) -> dict[str, object]:
        return {"b": [features["x"] + 1.0], "a": tf.reduce_sum(features["x"])}

    with tf.Graph().as_default():
        results = on_tpu(computation, {"x": v1.placeholder(tf.float32, [None, 3])})
    assert results["b"][0].shape.as_list() == [None, 3]
    assert results["a"].shape.as_list() == []


def test_a_result_that_is_no_tensor_is_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(ExportError, match="returned 'text', which is no"):
        on_tpu(lambda x: {"y": "text"}, v1.placeholder(tf.float32, []))


def test_a_computation_that_passes_its_inputs_through_puts_nothing_on_the_tpu() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None])
        assert on_tpu(lambda y: {"y": y}, x)["y"] is x
        assert [operation.type for operation in graph.get_operations()] == ["Placeholder"]


def test_a_computation_within_another_is_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(ExportError, match="inside of another.*V2"):
        on_tpu(lambda x: on_tpu(lambda y: y + 1.0, x), tf.ones([2]))
