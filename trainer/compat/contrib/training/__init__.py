"""tf.contrib.training: HParams, and functions for train ops and for waiting for checkpoints."""

from tensorflow.compat.v1.train import checkpoints_iterator
from tensorflow.python.training.checkpoint_utils import wait_for_new_checkpoint
from tensorflow.python.training.evaluation import (
    _get_or_create_eval_step as get_or_create_eval_step,
)
from tensorflow.python.training.evaluation import (
    _StopAfterNEvalsHook as StopAfterNEvalsHook,
)

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.training.hparam import HParams, parse_values
from trainer.compat.contrib.training.train_op import (
    add_gradients_summaries,
    clip_gradient_norms,
    clip_gradient_norms_fn,
    create_train_op,
    multiply_gradients,
)

__all__ = [
    "HParams",
    "StopAfterNEvalsHook",
    "add_gradients_summaries",
    "checkpoints_iterator",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "create_train_op",
    "get_or_create_eval_step",
    "multiply_gradients",
    "parse_values",
    "wait_for_new_checkpoint",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.training", __all__)
