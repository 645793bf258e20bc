import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import framework, layers, slim

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def _run_fetches(fetches: Any) -> Any:
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches)


def _names() -> list[str]:
    return [variable.op.name for variable in v1.global_variables()]


@pytest.mark.numeric
def test_fully_connected_multiplies_the_last_dimension() -> None:
    x = tf.constant([[[1.0, -2.0]], [[3.0, 1.0]]])
    outputs = layers.fully_connected(
        x,
        2,
        weights_initializer=v1.constant_initializer([[1, 2], [3, 4]]),
        biases_initializer=v1.constant_initializer(0.5),
    )
    np.testing.assert_allclose(_run_fetches(outputs), [[[0.0, 0.0]], [[6.5, 10.5]]])
    assert _names() == ["fully_connected/weights", "fully_connected/biases"]
    assert framework.get_model_variables() == v1.global_variables()


def test_a_normalizer_replaces_biases_and_scopes_are_numbered() -> None:
    x = tf.ones([2, 3])
    layers.fully_connected(x, 2, normalizer_fn=layers.layer_norm)
    layers.linear(x, 1)
    assert _names() == [
        "fully_connected/weights",
        "fully_connected/LayerNorm/beta",
        "fully_connected/LayerNorm/gamma",
        "fully_connected_1/weights",
        "fully_connected_1/biases",
    ]


@pytest.mark.parametrize(
    ("layer", "scope", "variables"),
    [
        (lambda x: layers.conv2d(x, 4, 3), "Conv", {"weights": (3, 3, 2, 4), "biases": (4,)}),
        (
            lambda x: layers.separable_conv2d(x, 4, [3, 3], 2),
            "SeparableConv2d",
            {
                "depthwise_weights": (3, 3, 2, 2),
                "pointwise_weights": (1, 1, 4, 4),
                "biases": (4,),
            },
        ),
        (
            lambda x: layers.conv2d_transpose(x, 4, 3, 2),
            "Conv2d_transpose",
            {"weights": (3, 3, 4, 2), "biases": (4,)},
        ),
        (
            lambda x: layers.batch_norm(x, scale=True),
            "BatchNorm",
            {"beta": (2,), "gamma": (2,), "moving_mean": (2,), "moving_variance": (2,)},
        ),
        (layers.layer_norm, "LayerNorm", {"beta": (2,), "gamma": (2,)}),
        (lambda x: layers.group_norm(x, 2), "GroupNorm", {"beta": (2,), "gamma": (2,)}),
        (layers.instance_norm, "InstanceNorm", {"beta": (2,), "gamma": (2,)}),
        (layers.bias_add, "BiasAdd", {"biases": (2,)}),
    ],
)
def test_variables_have_the_names_and_shapes_of_checkpoints(
    layer: Callable[[Any], Any], scope: str, variables: dict[str, Any]
) -> None:
    outputs = layer(tf.ones([1, 6, 6, 2]))
    shapes = {variable.op.name: tuple(variable.shape) for variable in v1.global_variables()}
    assert shapes == {f"{scope}/{name}": shape for name, shape in variables.items()}
    assert _run_fetches(outputs).shape == tuple(outputs.shape)


def test_convolutions_of_ones_count_the_pixels() -> None:
    ones = v1.ones_initializer()
    x = tf.ones([1, 3, 3, 1])
    same = layers.conv2d(x, 1, 3, weights_initializer=ones)
    valid = layers.conv2d(x, 1, 3, padding="VALID", weights_initializer=ones)
    depthwise = layers.separable_conv2d(x, None, 3, 2, stride=2, weights_initializer=ones)
    transposed = layers.conv2d_transpose(x[:, :1, :1], 1, 2, 2, weights_initializer=ones)
    outputs = [
        output.tolist()
        for output in _run_fetches([same[0, :, :, 0], valid, depthwise, transposed[0, :, :, 0]])
    ]
    assert outputs[0] == [[4, 6, 4], [6, 9, 6], [4, 6, 4]]
    assert outputs[1] == [[[[9]]]]
    assert outputs[2] == [[[[4, 4], [4, 4]], [[4, 4], [4, 4]]]]
    assert outputs[3] == [[1, 1], [1, 1]]


@pytest.mark.numeric
def test_pooling_flattening_and_scaling() -> None:
    x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
    outputs = _run_fetches(
        [
            layers.max_pool2d(x, 2)[0, :, :, 0],
            layers.avg_pool2d(x, [2, 2], stride=1)[0, 0, :, 0],
            layers.flatten(x),
            layers.one_hot_encoding([1, 0], 3),
            layers.dropout(x, is_training=False),
            layers.unit_norm(tf.constant([[3.0, 4.0]]), 1),
        ]
    )
    assert outputs[0].tolist() == [[5, 7], [13, 15]]
    assert outputs[1].tolist() == [2.5, 3.5, 4.5]
    assert outputs[2].shape == (1, 16)
    assert outputs[3].tolist() == [[0, 1, 0], [1, 0, 0]]
    assert outputs[4].ravel().tolist() == list(range(16))
    np.testing.assert_allclose(outputs[5], [[0.6, 0.8]], rtol=1e-6)


def test_dropout_drops_half_and_doubles_the_rest() -> None:
    outputs = _run_fetches(layers.dropout(tf.ones([4000]), keep_prob=0.5, seed=1))
    assert set(outputs) == {0.0, 2.0}
    assert abs(outputs.mean() - 1.0) < 0.1


@pytest.mark.numeric
def test_normalization_is_over_the_expected_axes() -> None:
    # The values 1, 2, 3 of a row have the mean 2 and the variance 2/3.
    x = tf.constant([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    one = math.sqrt(3 / 2)
    expected = [[-one, 0.0, one], [one, 0.0, -one]]
    np.testing.assert_allclose(_run_fetches(layers.layer_norm(x)), expected, 1e-5)
    # The input has two pixels and two channels; each channel is a group.
    y = tf.constant([[[[0.0, 10.0]], [[2.0, 30.0]]]])
    for outputs in (layers.group_norm(y, 2), layers.instance_norm(y)):
        np.testing.assert_allclose(_run_fetches(outputs)[0, :, 0], [[-1, -1], [1, 1]], atol=1e-4)
    # Both channels form one group: 0, 10, 2, 30 have the mean 10.5 and the variance 140.75.
    np.testing.assert_allclose(
        _run_fetches(layers.group_norm(y, 1))[0, :, 0],
        (np.array([[0, 10], [2, 30]]) - 10.5) / math.sqrt(140.75),
        rtol=1e-4,
    )
    with pytest.raises(InvalidSetting, match="groups must divide the number of channels"):
        layers.group_norm(y, 3)


@pytest.mark.parametrize(("fused", "sample"), [(None, 4 / 3), (False, 1.0)])
@pytest.mark.numeric
def test_batch_norm_uses_the_batch_then_the_averages(fused: bool | None, sample: float) -> None:
    # The batch 1, 3, 5, 7 has the mean 4 and the variance 5.
    x = tf.constant([[1.0], [3.0], [5.0], [7.0]])
    options: Any = {"decay": 0.5, "scope": "norm", "epsilon": 0.002, "fused": fused}
    trained = layers.batch_norm(x, **options)
    served = layers.batch_norm(x, is_training=False, reuse=True, **options)
    updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        np.testing.assert_allclose(session.run(trained)[3], [3 / math.sqrt(5.002)], rtol=1e-5)
        np.testing.assert_allclose(session.run(served)[3], [7 / math.sqrt(1.002)], rtol=1e-5)
        session.run(updates)
        mean, variance = 2.0, 0.5 + 0.5 * 5 * sample
        expected = (7 - mean) / math.sqrt(variance + 0.002)
        np.testing.assert_allclose(session.run(served)[3], [expected], rtol=1e-5)
    assert len(updates) == 2


def test_batch_norm_updates_in_place_if_a_tensor_says_training() -> None:
    training = v1.placeholder_with_default(True, [])
    x = tf.constant([[[[2.0]], [[4.0]]]])
    outputs = layers.batch_norm(x, decay=0.5, updates_collections=None, is_training=training)
    (mean,) = framework.get_variables(suffix="moving_mean")
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(outputs, {training: False})
        assert session.run(mean) == 0.0
        session.run(outputs)
        assert session.run(mean) == 1.5


@pytest.mark.numeric
def test_batch_norm_weights_the_examples() -> None:
    x = tf.constant([[1.0], [3.0], [100.0]])
    outputs = layers.batch_norm(x, batch_weights=tf.constant([1.0, 1.0, 0.0]), epsilon=1e-9)
    np.testing.assert_allclose(_run_fetches(outputs)[:2], [[-1], [1]], rtol=1e-5)


@pytest.mark.numeric
def test_initializers_have_the_variance_of_their_papers() -> None:
    shape = [3, 3, 20, 30]
    glorot = _run_fetches(layers.xavier_initializer(seed=1)(shape))
    limit = math.sqrt(6 / (9 * 20 + 9 * 30))
    assert limit * 0.99 < abs(glorot).max() <= limit
    he = _run_fetches(layers.variance_scaling_initializer(seed=1)(shape))
    assert he.std() == pytest.approx(math.sqrt(2 / (9 * 20)), rel=0.05)
    with pytest.raises(InvalidSetting, match="FAN_IN, FAN_OUT, FAN_AVG"):
        layers.variance_scaling_initializer(mode="FAN")


@pytest.mark.numeric
def test_regularizers_add_up() -> None:
    w = tf.constant([1.0, -2.0])
    both = layers.l1_l2_regularizer(0.1, 0.5)
    assert layers.l2_regularizer(0.0)(w) is None
    regularization = _run_fetches(
        [layers.l1_regularizer(0.1)(w), layers.l2_regularizer(0.5)(w), both(w)]
    )
    np.testing.assert_allclose(regularization, [0.3, 1.25, 1.55], rtol=1e-6)
    np.testing.assert_allclose(
        _run_fetches(layers.apply_regularization(both, [w, w])), 3.1, rtol=1e-6
    )
    layers.fully_connected(tf.ones([1, 2]), 2, weights_regularizer=both)
    assert len(v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)) == 2
    with pytest.raises(InvalidSetting, match="Pass a float of at least 0"):
        layers.l2_regularizer(1)


def test_scopes_set_defaults_and_the_innermost_counts() -> None:
    with slim.arg_scope([slim.conv2d, slim.fully_connected], activation_fn=None) as outer:
        with slim.arg_scope([slim.conv2d], padding="VALID", stride=2):
            outputs = slim.conv2d(-tf.ones([1, 5, 5, 1]), 1, 3, stride=1, weights_initializer=_ones)
            assert outputs.shape == [1, 3, 3, 1]
        assert slim.conv2d(tf.ones([1, 5, 5, 1]), 1, 3).shape == [1, 5, 5, 1]
    assert slim.arg_scoped_arguments(slim.conv2d)[:2] == ("stride", "padding")
    with slim.arg_scope(outer):
        assert (
            _run_fetches(slim.fully_connected(-tf.ones([1, 2]), 1, weights_initializer=_ones)) == -2
        )
    assert _run_fetches(outputs).min() == -9
    with (
        pytest.raises(InvalidSetting, match="Decorate it with @add_arg_scope"),
        slim.arg_scope([len], x=1),
    ):
        pass


def _ones(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> Any:
    return tf.ones(shape, dtype)


def test_repeated_layers_are_collected_by_scope() -> None:
    x = tf.ones([1, 4, 4, 1])
    slim.repeat(x, 2, slim.conv2d, 3, [1, 1], scope="conv1", outputs_collections="ends")
    slim.stack(tf.ones([1, 2]), slim.fully_connected, [3, 4], scope="fc")
    points = slim.utils.convert_collection_to_dict("ends")
    assert list(points) == ["conv1/conv1_1", "conv1/conv1_2"]
    assert [name for name in _names() if name.endswith("weights")] == [
        "conv1/conv1_1/weights",
        "conv1/conv1_2/weights",
        "fc/fc_1/weights",
        "fc/fc_2/weights",
    ]


@pytest.mark.parametrize("unique", [False, True])
def test_sequences_are_embedded(unique: bool) -> None:
    table = v1.constant_initializer([[1, 2], [3, 4]])
    embedded = layers.embed_sequence([[1, 0, 1]], 2, 2, unique=unique, initializer=table)
    assert _run_fetches(embedded).tolist() == [[[3, 4], [1, 2], [3, 4]]]


def _loss() -> tuple[Any, Any]:
    w = v1.get_variable("w", initializer=tf.constant([3.0, 4.0]), use_resource=True)
    return w, tf.reduce_sum(w * [3.0, 4.0])


@pytest.mark.parametrize(
    ("optimizer", "options", "expected"),
    [
        # In the tests of optimize_loss the gradient is (3, 4), whose norm is 5.
        ("SGD", {}, [2.7, 3.6]),
        (v1.train.GradientDescentOptimizer, {"clip_gradients": 1.0}, [2.94, 3.92]),
        (v1.train.GradientDescentOptimizer, {"gradient_multipliers": {"w": 2.0}}, [2.4, 3.2]),
        ("SGD", {"learning_rate_decay_fn": lambda rate, step: rate / 10.0}, [2.97, 3.96]),
        ("SGD", {"clip_gradients": lambda pairs: [(-g, v) for g, v in pairs]}, [3.3, 4.4]),
        ("Adam", {}, [2.9, 3.9]),
    ],
)
@pytest.mark.numeric
def test_optimize_loss_applies_its_options(
    optimizer: Any, options: dict[str, Any], expected: Any
) -> None:
    step = v1.train.create_global_step()
    w, loss = _loss()
    train = layers.optimize_loss(loss, step, 0.1, optimizer, **options)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(train) == 25.0
        np.testing.assert_allclose(session.run(w), expected, rtol=1e-5)
        assert session.run(step) == 1


def test_update_ops_precede_the_loss_and_summaries_are_written() -> None:
    w, loss = _loss()
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, w.assign([1.0, 0.0]))
    train = layers.optimize_loss(loss, v1.train.create_global_step(), 0.1, "SGD")
    _run_fetches(train)
    names = {summary.op.name for summary in v1.get_collection(v1.GraphKeys.SUMMARIES)}
    assert names == {
        "OptimizeLoss/loss",
        "OptimizeLoss/global_norm/gradient_norm",
    }
    with pytest.raises(InvalidSetting, match="Use one of Adagrad, Adam"):
        layers.optimize_loss(loss, None, 0.1, "Sgd")
