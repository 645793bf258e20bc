"""Counts an evaluation's steps in the local variable "eval_step", as TensorFlow's hooks expect."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import evaluation, get_private_attribute


def count_steps(update: Any, steps_per_run: Any, hooks: Sequence[Any]) -> Any:
    """Build the op that updates the metrics of an evaluation and counts its steps.

    Args:
      steps_per_run: the number of steps of each run of `update`, a number or an integer tensor [].
      hooks: the hooks of the evaluation, from the user and from model_fn. If TensorFlow's hook that
        stops an evaluation after a number of steps is among them, it receives the count.

    Returns:
      The op. It is `update` itself if nothing can read the count, because there are no hooks and
      model_fn has not created the variable "eval_step".
    """
    if not hooks and not tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.EVAL_STEP):
        return update
    step = evaluation._get_or_create_eval_step()
    with tf.control_dependencies([update]):
        count = tf.compat.v1.assign_add(step, tf.cast(steps_per_run, tf.int64))
        completed = tf.identity(count, name="evals_completed")
    for hook in hooks:
        if isinstance(hook, evaluation._StopAfterNEvalsHook):
            get_private_attribute(hook, "_set_evals_completed_tensor")(completed)
    return completed.op
