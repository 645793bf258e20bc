from typing import Any

import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.graph_matcher import GraphMatcher, OneofPattern, OpTypePattern

v1 = tf.compat.v1


@pytest.fixture
def graph() -> Any:
    """The graph of relu(x y) + exp(x)."""
    with tf.Graph().as_default() as graph:
        x, y = v1.placeholder(tf.float32, [2, 2], "x"), v1.placeholder(tf.float32, [2, 2], "y")
        tf.add(tf.nn.relu(tf.matmul(x, y, name="product")), tf.exp(x), "sum")
    return graph


def test_a_pattern_finds_ops_and_the_tensors_that_they_pass_on(graph: Any) -> None:
    product = OpTypePattern("MatMul", name="product", inputs=["*", "Placeholder"])
    pattern = OpTypePattern("Relu|Relu6", inputs=[product])
    (result,) = GraphMatcher(pattern).match_graph(graph)
    assert result.get_op(pattern).type == "Relu"
    assert result.get_tensor(pattern) is None
    assert result.get_op("product").name == "product"
    assert result.get_tensor(product).name == "product:0"
    assert result.get_op("other") is None


def test_inputs_match_in_their_order_or_in_any(graph: Any) -> None:
    inputs = ["Exp", "Relu"]
    op = graph.get_operation_by_name("sum")
    assert GraphMatcher(OpTypePattern("*", inputs=inputs)).match_op(op) is None
    assert GraphMatcher(OpTypePattern("*", inputs=inputs, ordered_inputs=False)).match_op(op)


def test_one_of_several_patterns_matches(graph: Any) -> None:
    pattern = OneofPattern([OpTypePattern("Exp", name="exp"), OpTypePattern("Relu", name="relu")])
    results = list(GraphMatcher(pattern).match_graph(graph))
    assert [result.get_op("exp") is None for result in results] == [True, False]


def test_another_number_of_inputs_does_not_match(graph: Any) -> None:
    op = graph.get_operation_by_name("sum")
    assert GraphMatcher(OpTypePattern("*", inputs=["Relu"])).match_op(op) is None


def test_too_many_inputs_in_any_order_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="got 9 inputs in any order. Give at most 8"):
        OpTypePattern("AddN", inputs=["*"] * 9, ordered_inputs=False)
