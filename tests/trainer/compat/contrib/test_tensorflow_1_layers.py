"""Behaviour observed in TensorFlow 1.15's tf.contrib.layers: names, orders, shapes, collections."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import framework, layers, slim

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _graph_of_tensorflow_1() -> Iterator[None]:
    """Run the test in a graph in which the items of a shape are Dimension objects."""
    v1.disable_v2_tensorshape()
    with tf.Graph().as_default():
        yield
    v1.enable_v2_tensorshape()


def _names(variables: Any) -> list[str]:
    return [variable.op.name for variable in variables]


def test_batch_and_image_sizes_may_be_unknown() -> None:
    x = v1.placeholder(tf.float32, [None, None, None, 3])
    outputs = [
        layers.conv2d(x, 4, 3, stride=2),
        layers.conv2d_transpose(x, 5, 3, stride=2),
        layers.separable_conv2d(x, 5, 3),
        layers.batch_norm(x),
        layers.instance_norm(x),
        layers.layer_norm(x, begin_norm_axis=-1),
        layers.max_pool2d(x, 2),
    ]
    channels = [4, 5, 5, 3, 3, 3, 3]
    assert [output.shape.as_list() for output in outputs] == [[None] * 3 + [c] for c in channels]
    rows = v1.placeholder(tf.float32, [None, 4, 5])
    assert layers.flatten(rows).shape.as_list() == [None, 20]
    assert layers.fully_connected(rows, 2).shape.as_list() == [None, 4, 2]
    with pytest.raises(InvalidSetting, match="number of channels is unknown"):
        layers.batch_norm(v1.placeholder(tf.float32, [2, None]))
    with pytest.raises(InvalidSetting, match=r"dimension -1 \(the channels\) is unknown"):
        layers.conv2d(v1.placeholder(tf.float32, [2, 4, 4, None]), 4, 3)
    with pytest.raises(InvalidSetting, match="the last of a known size"):
        layers.fully_connected(v1.placeholder(tf.float32, [2, None]), 3)


def test_flatten_accepts_an_unknown_batch_size() -> None:
    rows = v1.placeholder(tf.float32, [None, 2, 2])
    with v1.Session() as session:
        values = session.run(layers.flatten(rows), {rows: np.arange(8.0).reshape(2, 2, 2)})
    assert values.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_outputs_of_layers_are_collected_by_variable_scope() -> None:
    # Towers and TPU graphs add name scopes, which must not change the keys.
    picture = tf.ones([1, 4, 4, 2])
    with v1.name_scope("tower"), v1.variable_scope("net"):
        for layer in (
            lambda **options: layers.conv2d(picture, 2, 3, **options),
            lambda **options: layers.batch_norm(picture, **options),
            lambda **options: layers.dropout(picture, **options),
            lambda **options: layers.max_pool2d(picture, 2, **options),
            lambda **options: layers.flatten(picture, **options),
        ):
            layer(outputs_collections="end_points")
    assert list(slim.utils.convert_collection_to_dict("end_points")) == [
        "net/Conv",
        "net/BatchNorm",
        "net/Dropout",
        "tower/net/MaxPool2D",
        "tower/net/Flatten",
    ]


@pytest.mark.parametrize(
    ("shape", "options", "order"),
    [
        ([2, 4, 4, 3], {}, ["gamma", "beta"]),
        ([2, 4, 3], {}, ["gamma", "beta"]),
        ([2, 4, 4, 3], {"fused": False}, ["gamma", "beta"]),
        ([4, 3], {"fused": False}, ["gamma", "beta"]),
        ([4, 3], {}, ["beta", "gamma"]),
        ([2, 4, 4, 3], {"updates_collections": None}, ["beta", "gamma"]),
        ([2, 4, 4, 3], {"batch_weights": [1.0, 2.0]}, ["beta", "gamma"]),
        ([2, 4, 4, 3], {"zero_debias_moving_mean": True}, ["beta", "gamma"]),
    ],
)
def test_batch_norm_creates_its_variables_in_order(
    shape: list[int], options: dict[str, Any], order: list[str]
) -> None:
    layers.batch_norm(tf.ones(shape), scale=True, **options)
    expected = [f"BatchNorm/{name}" for name in (*order, "moving_mean", "moving_variance")]
    assert _names(v1.global_variables())[:4] == expected


@pytest.mark.parametrize(
    ("shape", "options", "updates"),
    [
        ([2, 4, 4, 3], {}, 0),
        ([2, 4, 4, 3], {"fused": False}, 0),
        ([4, 3], {}, 2),
        ([2, 4, 4, 3], {"batch_weights": [1.0, 2.0]}, 2),
    ],
)
def test_averages_of_untrained_layers_are_not_updated(
    shape: list[int], options: dict[str, Any], updates: int
) -> None:
    layers.batch_norm(tf.ones(shape), trainable=False, **options)
    assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == updates


def test_embeddings_are_model_variables() -> None:
    ids = v1.placeholder(tf.int32, [None, 2])
    assert layers.embed_sequence(ids, 4, 3, unique=True).shape.as_list() == [None, 2, 3]
    assert _names(framework.get_model_variables()) == ["EmbedSequence/embeddings"]


@pytest.mark.numeric
def test_regularization_losses_have_their_names() -> None:
    w = tf.constant([1.0, -2.0, 3.0])
    both = layers.l1_l2_regularizer(0.1, 0.3)(w)
    assert both.op.name == "l1_l2_regularizer"
    assert layers.l2_regularizer(0.1)(w).op.name == "l2_regularizer"
    with v1.Session() as session:
        # The loss of l1_l2_regularizer: 0.1 (1 + 2 + 3) + 0.3 (1 + 4 + 9) / 2.
        assert session.run(both) == pytest.approx(2.7)


def test_summaries_have_their_tags() -> None:
    w = v1.get_variable("w", [2], initializer=v1.ones_initializer())
    summaries = [
        layers.summarize_tensor(tf.constant(1.0, name="number")),
        layers.summarize_tensor(w, "tag"),
        *layers.summarize_collection(v1.GraphKeys.GLOBAL_VARIABLES),
    ]
    assert [summary.op.name for summary in summaries] == ["number_summary", "tag", "w_summary"]


def test_optimize_loss_names_its_summaries_after_the_variables() -> None:
    w = v1.get_variable("w", initializer=3.0)
    step = v1.train.create_global_step()
    layers.optimize_loss(
        w * w,
        step,
        0.1,
        "SGD",
        learning_rate_decay_fn=lambda rate, step: v1.train.exponential_decay(rate, step, 1, 0.5),
        summaries=layers.OPTIMIZER_SUMMARIES,
    )
    assert {summary.op.name for summary in v1.get_collection(v1.GraphKeys.SUMMARIES)} == {
        "OptimizeLoss/learning_rate_1",
        "OptimizeLoss/loss",
        "OptimizeLoss/gradients/w_0",
        "OptimizeLoss/gradient_norm/w_0",
        "OptimizeLoss/global_norm/gradient_norm",
    }


@pytest.mark.numeric
def test_a_multiplier_may_be_keyed_by_tensor_name() -> None:
    w = v1.get_variable("w", initializer=3.0)
    train = layers.optimize_loss(
        w * w, v1.train.create_global_step(), 0.1, "SGD", gradient_multipliers={"w:0": 2.0}
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        # The train op returns the loss before the step; then w becomes 3 - 0.1 * 2 * 6.
        assert session.run(train) == 9.0
        assert session.run(w) == pytest.approx(1.8)


def test_rarely_used_layers() -> None:
    row = tf.constant([[1.0, 5.0, 2.0, 3.0]])
    cube = tf.reshape(tf.range(8.0), [1, 2, 2, 2, 1])
    outputs = [
        layers.maxout(row, 2),
        layers.max_pool3d(cube, 2),
        layers.avg_pool3d(cube, 2),
        layers.stack(row, layers.fully_connected, []),
    ]
    with v1.Session() as session:
        values = [value.ravel().tolist() for value in session.run(outputs)]
    assert values == [[5.0, 3.0], [7.0], [3.5], [1.0, 5.0, 2.0, 3.0]]
    assert layers.elu(row, 2).op.type == "Elu"
    with pytest.raises(
        InvalidSetting, match="dimension 1 must be known and a multiple of num_units"
    ):
        layers.maxout(row, 3)


def test_wrong_shapes_and_formats_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"Pass \[batch, ...\]"):
        layers.flatten(tf.constant(1.0))
    with pytest.raises(InvalidSetting, match="Use 'NHWC' or 'NCHW'"):
        layers.batch_norm(tf.ones([2, 2]), data_format="HWC")
