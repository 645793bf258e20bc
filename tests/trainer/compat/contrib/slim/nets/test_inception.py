import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import slim
from trainer.compat.contrib.slim.nets import inception

v1 = tf.compat.v1


@pytest.mark.slow
@pytest.mark.numeric
def test_inception_has_the_variables_and_endpoints_of_checkendpoints() -> None:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        pictures = tf.zeros([1, 139, 139, 3])
        with slim.arg_scope(inception.inception_v3_arg_scope()):
            logits, endpoints = inception.inception_v3(
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
            "InceptionV3/Mixed_7b/Branch_1/Conv2d_0b_3x1/weights",
            "InceptionV3/Mixed_7c/Branch_1/Conv2d_0c_3x1/weights",
            "InceptionV3/AuxLogits/Conv2d_2b_1x1/biases",
            "InceptionV3/Logits/Conv2d_1c_1x1/weights",
        } <= names
        assert list(endpoints)[-5:] == [
            "Mixed_7c", "AuxLogits", "PreLogits", "Logits", "Predictions",
        ]  # fmt: skip
        session.run(v1.global_variables_initializer())
        values, probabilities = session.run([logits, endpoints["Predictions"]])
    # All weights multiply zeros for a black image, and biases start at zero, so the output is zero.
    np.testing.assert_allclose(values, np.zeros([1, 5]), atol=1e-4)
    np.testing.assert_allclose(probabilities, np.full([1, 5], 0.2), rtol=1e-4)


def test_the_network_may_end_at_any_endpoint_with_a_positive_depth() -> None:
    with tf.Graph().as_default():
        net, endpoints = inception.inception_v3_base(tf.zeros([1, 75, 75, 3]), "MaxPool_3a_3x3")
        assert net.shape == [1, 17, 17, 64]
        assert len(endpoints) == 4
    with pytest.raises(InvalidSetting, match="depth_multiplier=0. Use more"):
        inception.inception_v3_base(None, depth_multiplier=0)
