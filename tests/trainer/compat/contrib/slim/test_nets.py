import numpy as np
import pytest
import tensorflow as tf

from trainer.compat.contrib import slim
from trainer.compat.contrib.slim import nets

v1 = tf.compat.v1


@pytest.mark.slow
@pytest.mark.numeric
def test_inception_has_the_variables_and_endpoints_of_checkpoints() -> None:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        pictures = tf.zeros([1, 139, 139, 3])
        with slim.arg_scope(nets.inception.inception_v3_arg_scope()):
            logits, endpoints = nets.inception.inception_v3(
                pictures, 5, is_training=True, depth_multiplier=0.125
            )
        # The numbers were observed in TensorFlow 1.15.
        keys = ("variables", "trainable_variables", "regularization_losses", "moving_vars")
        assert [len(graph.get_collection(key)) for key in keys] == [388, 196, 98, 192]
        assert len(graph.get_collection("update_ops")) == 192
        names = {variable.op.name for variable in v1.global_variables()}
        assert {
            "InceptionV3/Conv2d_1a_3x3/BatchNorm/moving_mean",
            "InceptionV3/Mixed_5c/Branch_1/Conv_1_0c_5x5/weights",
            "InceptionV3/AuxLogits/Conv2d_2b_1x1/biases",
            "InceptionV3/Logits/Conv2d_1c_1x1/weights",
        } <= names
        session.run(v1.global_variables_initializer())
        values, probabilities = session.run([logits, endpoints["Predictions"]])
    # All weights multiply zeros for a black image, and biases start at zero, so the output is zero.
    np.testing.assert_allclose(values, np.zeros([1, 5]), atol=1e-4)
    np.testing.assert_allclose(probabilities, np.full([1, 5], 0.2), rtol=1e-4)


@pytest.mark.slow
def test_networks_obey_the_arg_scope_of_contrib() -> None:
    with tf.Graph().as_default():
        with slim.arg_scope(nets.resnet_v1.resnet_arg_scope(weight_decay=0.5)):
            logits, _ = nets.resnet_v1.resnet_v1_50(tf.zeros([1, 32, 32, 3]), 5)
        # 53 convolutions with batch normalization, and one that returns logits.
        assert len(v1.trainable_variables()) == 53 * 3 + 2
        assert len(v1.losses.get_regularization_losses()) == 54
        assert logits.shape == [1, 1, 1, 5]


def test_a_part_of_a_network_can_be_built() -> None:
    with tf.Graph().as_default(), slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm):
        net = nets.resnet_utils.conv2d_same(tf.zeros([1, 8, 8, 3]), 4, 3, stride=2, scope="conv")
        assert net.shape == [1, 4, 4, 4]
        assert "conv/BatchNorm/beta" in [v.op.name for v in v1.global_variables()]
