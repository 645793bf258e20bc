"""Adam with weight decay, warm-up, and clipped gradients."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import tensorflow as tf


def rate_schedule(peak, global_step, num_train_steps, num_warmup_steps):
    """Return the learning rate: it rises linearly to `peak` in the warm-up, then falls to 0."""
    falling = tf.train.polynomial_decay(
        tf.constant(peak, tf.float32), global_step, num_train_steps, end_learning_rate=0.0
    )
    if not num_warmup_steps:
        return falling
    progress = tf.to_float(global_step) / float(num_warmup_steps)
    return tf.where(progress < 1.0, peak * progress, falling)


def create_optimizer(loss, peak, num_train_steps, num_warmup_steps, use_tpu):
    global_step = tf.train.get_or_create_global_step()
    optimizer = AdamWeightDecayOptimizer(
        rate_schedule(peak, global_step, num_train_steps, num_warmup_steps),
        no_decay=("layer_norm", "LayerNorm", "bias"),
    )
    if use_tpu:
        optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)

    variables = tf.trainable_variables()
    gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), clip_norm=1.0)
    tf.logging.info("the norm of the gradients is %s", norm.name)
    train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=global_step)
    # Count the step here: unlike TensorFlow's optimizers, AdamWeightDecayOptimizer does not.
    return tf.group(train_op, [global_step.assign(global_step + 1)])


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """Adam without bias correction, and with weight decay that does not enter the moments."""

    def __init__(
        self,
        rate,
        decay=0.01,
        betas=(0.9, 0.999),
        epsilon=1e-6,
        no_decay=(),
        name="AdamWeightDecayOptimizer",
    ):
        super(AdamWeightDecayOptimizer, self).__init__(use_locking=False, name=name)
        self._rate = rate
        self._decay = decay
        self._betas = betas
        self._epsilon = epsilon
        self._no_decay = no_decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updates = []
        for gradient, variable in grads_and_vars:
            if gradient is not None:
                updates += self._updates(gradient, variable)
        return tf.group(*updates, name=name)

    def _updates(self, gradient, variable):
        own_name = variable.op.name
        moments = []
        for suffix, beta, value in zip(
            ("adam_m", "adam_v"), self._betas, (gradient, tf.square(gradient))
        ):
            moment = tf.get_variable(
                own_name + "/" + suffix,
                shape=variable.shape.as_list(),
                dtype=tf.float32,
                initializer=tf.zeros_initializer(),
                trainable=False,
            )
            moments.append((moment, beta * moment + tf.multiply(1.0 - beta, value)))
        (_, first), (_, second) = moments
        change = first * tf.rsqrt(second + self._epsilon**2)
        if not any(part in own_name for part in self._no_decay):
            change += self._decay * variable
        return [tf.assign(moment, value) for moment, value in moments] + [
            tf.assign_sub(variable, self._rate * change)
        ]
