"""tf.contrib.slim.learning: train ops; the loop is the estimator's."""

from trainer.compat.contrib import absence
from trainer.compat.contrib.training.train_op import (
    add_gradients_summaries,
    clip_gradient_norms,
    create_train_op,
    multiply_gradients,
)

__all__ = [
    "add_gradients_summaries",
    "clip_gradient_norms",
    "create_train_op",
    "multiply_gradients",
]

__getattr__ = absence.of("tf.contrib.slim.learning", __all__)
