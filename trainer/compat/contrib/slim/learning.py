"""tf.contrib.slim.learning: functions that build train ops.

slim's training loop is not supplied, because TPUEstimator trains instead.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.compat import contrib_missing_names
from trainer.compat.contrib import training
from trainer.compat.contrib.training.train_op import (
    USE_GLOBAL_STEP,
    Gradients,
    add_gradients_summaries,
    clip_gradient_norms,
    multiply_gradients,
)

__all__ = [
    "add_gradients_summaries",
    "clip_gradient_norms",
    "create_train_op",
    "multiply_gradients",
]


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = USE_GLOBAL_STEP,
    update_ops: Sequence[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = 1,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    check_numerics: bool = True,
) -> Any:
    """Build a train op that returns the loss.

    Args:
      gradient_multipliers: maps a variable, or a variable's name, to a factor of its gradient,
        which is applied before clipping.
    """

    def transform_gradients(gradients: Gradients) -> Gradients:
        if gradient_multipliers:
            gradients = multiply_gradients(gradients, gradient_multipliers)
        if clip_gradient_norm > 0:
            gradients = clip_gradient_norms(gradients, clip_gradient_norm)
        return gradients

    return training.create_train_op(
        total_loss,
        optimizer,
        global_step=global_step,
        update_ops=update_ops,
        variables_to_train=variables_to_train,
        transform_grads_fn=transform_gradients,
        summarize_gradients=summarize_gradients,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
        check_numerics=check_numerics,
    )


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.learning", __all__)
