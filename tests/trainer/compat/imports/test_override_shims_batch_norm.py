import importlib
from typing import Any

import tensorflow as tf

from trainer.compat.imports import override_shims


def test_batch_normalization_with_overridden_moments_works_as_in_tensorflow_1() -> None:
    override_shims.install_override_shims(
        importlib.import_module(override_shims.BATCH_NORMALIZATION_MODULE)
    )

    class DoubledMeanNormalization(tf.compat.v1.layers.BatchNormalization):
        def _moments(self, inputs: Any, reduction_axes: Any, keep_dims: bool) -> Any:
            mean, variance = super()._moments(inputs, reduction_axes, keep_dims=keep_dims)
            return 2 * mean, variance

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        # The mean is 2, doubled it is 4; the variance is 1.
        normalized = DoubledMeanNormalization(fused=False, epsilon=0.0)(
            tf.constant([[1.0], [3.0]]), training=True
        )
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(normalized).tolist() == [[-3.0], [-1.0]]
