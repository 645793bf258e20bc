from collections import namedtuple
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.saved_model.model_utils.export_output import PredictOutput

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import (
    BatchConfig,
    call_computation,
    inference_on_tpu,
    model_fn_inference_on_tpu,
)

v1 = tf.compat.v1

CONFIG = BatchConfig(1, 4, 1000, [2, 4])
SETTINGS = (1, 4, 1000, [2, 4])

Spec = namedtuple("Spec", ["predictions", "export_outputs", "loss"])


def function_of(graph: tf.Graph, op: str) -> set[str]:
    """Return the op types in the function that an op calls.

    Args:
      graph: the graph, in which or in whose functions one node has the type `op`.
      op: the op type, such as "BatchFunction".
    """
    definition = graph.as_graph_def()
    functions = {
        function.signature.name: function.node_def for function in definition.library.function
    }
    nodes = [
        *definition.node,
        *(node for function_nodes in functions.values() for node in function_nodes),
    ]
    (called,) = (node.attr["f"].func.name for node in nodes if node.op == op)
    return {node.op for node in functions[called]}


def test_a_batch_function_surrounds_the_tpu_computation() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 3])
        (y,) = inference_on_tpu(lambda x: x * 2.0, [x], *SETTINGS)
    assert y.shape.as_list() == [None, 3]
    assert {"TPUPartitionedCall", "TPUOrdinalSelector"} <= function_of(graph, "BatchFunction")
    assert {"Mul", "TPUReplicatedInput"} & function_of(graph, "TPUPartitionedCall")
    (node,) = (node for node in graph.as_graph_def().node if node.op == "BatchFunction")
    assert list(node.attr["allowed_batch_sizes"].list.i) == [2, 4]
    assert node.attr["max_enqueued_batches"].i == 100


def test_batches_are_not_padded_where_no_sizes_are_given() -> None:
    with tf.Graph().as_default() as graph:
        inference_on_tpu(lambda x: x, [tf.compat.v1.placeholder(tf.float32, [None])], 1, 2, 100)
        (batch,) = (op for op in graph.get_operations() if op.type == "BatchFunction")
    assert list(batch.get_attr("allowed_batch_sizes")) == []


def test_a_list_is_the_arguments_and_any_other_nest_the_only_argument() -> None:
    with tf.Graph().as_default():
        x, y = tf.ones([2, 1]), tf.ones([2, 3])
        both = inference_on_tpu(lambda a, b: (a, b), [x, y], *SETTINGS)
        assert [tensor.shape.as_list() for tensor in both] == [[2, 1], [2, 3]]
        named = inference_on_tpu(lambda nest: {"z": nest["x"] + 1.0}, {"x": x}, *SETTINGS)
        assert named["z"].shape.as_list() == [2, 1]


def test_batch_settings_are_checked() -> None:
    with pytest.raises(InvalidSetting, match="max_batch_size is 4"):
        inference_on_tpu(lambda x: x, [tf.ones([1])], 1, 4, 1000, [1, 2])


def test_call_computation_requires_a_rewrite() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None])
        (y,) = call_computation(x, lambda x: v1.tpu.rewrite(lambda: x + 1.0))
        assert y.shape.as_list() == [None]
        assert "TPUReplicateMetadata" in function_of(graph, "TPUPartitionedCall")
        with pytest.raises(ExportError, match=r"did not call tpu\.rewrite"):
            call_computation(x, lambda x: x + 1.0, CONFIG)


@pytest.mark.parametrize("config", [None, CONFIG], ids=["whole", "batched"])
def test_any_spec_is_returned_with_results_of_the_call(config: BatchConfig | None) -> None:
    arguments: dict[str, Any] = {}

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Spec:
        arguments.update(mode=mode, params=params, labels=labels)
        y = features["x"] * 2.0
        return Spec({"y": y}, {"serving_default": PredictOutput({"z": y})}, tf.reduce_sum(y))

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 1])
        spec = model_fn_inference_on_tpu(model_fn, {"x": x}, params={"a": 1}, batch_config=config)
    assert arguments == {"mode": "infer", "params": {"a": 1}, "labels": None}
    outputs = spec.export_outputs["serving_default"].outputs
    assert spec.predictions["y"].graph is outputs["z"].graph is graph
    assert outputs["z"].shape.as_list() == [None, 1]
    assert spec.loss is None


def test_a_model_fn_that_returns_no_spec_is_refused() -> None:
    with (
        tf.Graph().as_default(),
        pytest.raises(InvalidSetting, match="dict. Return a spec with"),
    ):
        model_fn_inference_on_tpu(lambda features: {}, {"x": tf.ones([1])})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, CONFIG), "config is a BatchConfig. The arguments .*use the keyword batch_config"),
        ((None, None, CONFIG), "params is a BatchConfig"),
        ((CONFIG,), "labels is a BatchConfig"),
        ((None, None, None, 8), "batch_config is 8. Give a BatchConfig, or None"),
    ],
)
def test_a_batch_config_as_another_argument_is_refused(
    arguments: tuple[Any, ...], message: str
) -> None:
    with tf.Graph().as_default(), pytest.raises(InvalidType, match=message):
        model_fn_inference_on_tpu(lambda features: None, {"x": tf.ones([1])}, *arguments)
