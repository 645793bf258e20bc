"""An optimizer that averages gradients over the replicas of a step, on any device."""

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.tensorflow_internals import tpu_function

logger = logging.getLogger("tensorflow.trainer")

_MEAN = tf.compat.v1.losses.Reduction.MEAN
_SUM = tf.compat.v1.losses.Reduction.SUM


class CrossShardOptimizer(tf.compat.v1.train.Optimizer):
    """Wraps an optimizer: each replica applies the mean, or the sum, of all replicas' gradients.

    The mean is that of gradients from `minimize` or `compute_gradients`, which scale the loss for
    it. Gradients from elsewhere, as from tf.gradients, are summed as they are by
    `apply_gradients`: divide them by the number of replicas where the mean is wanted. So did the
    original.

    Off the TPU there is one replica, whose gradients are the mean already: the wrapped optimizer
    does the work alone, and no op is inserted that only a TPU could run.
    """

    def __init__(
        self,
        opt: Any,
        reduction: str = _MEAN,
        name: str = "CrossShardOptimizer",
        group_assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Wraps an optimizer.

        Args:
          opt: a tf.compat.v1.train.Optimizer.
          reduction: tf.compat.v1.losses.Reduction.MEAN or SUM.
          name: prefix of the ops it makes.
          group_assignment: lists of replica numbers that reduce among themselves; None for all.

        Raises:
          InvalidSetting: another reduction, or an optimizer of another kind.
        """
        if reduction not in (_MEAN, _SUM):
            raise InvalidSetting(
                f"CrossShardOptimizer reduction is {reduction!r}. Give Reduction.MEAN or "
                f"Reduction.SUM."
            )
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise InvalidSetting(
                f"CrossShardOptimizer got {opt!r}, which is no tf.compat.v1.train.Optimizer. "
                f"Wrap one of tf.compat.v1.train; Keras optimizers reduce in another way."
            )
        super().__init__(use_locking=False, name=name)
        self._optimizer = opt
        self._reduction = reduction
        self._group_assignment = group_assignment
        self._has_scaled = False

    def compute_gradients(
        self, loss: Any, var_list: Any = None, **kwargs: Any
    ) -> list[tuple[Any, Any]]:
        """This replica's gradients, scaled so that their sum over replicas is the reduction."""
        replicas = _replicas()
        if replicas > 1 and self._reduction == _MEAN:
            group = len(self._group_assignment[0]) if self._group_assignment else replicas
            loss = loss * (1.0 / group)
        self._has_scaled = True
        return list(self._optimizer.compute_gradients(loss, var_list=var_list, **kwargs))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """The op that reduces gradients over replicas and applies them."""
        pairs = list(grads_and_vars)
        if _replicas() > 1:
            if self._reduction == _MEAN and not self._has_scaled:
                logger.warning(
                    "CrossShardOptimizer sums the gradients of %d replicas, and does not average "
                    "them: they are not from its compute_gradients, which scales the loss for "
                    "that. Divide them by the number of replicas if you want their mean.",
                    _replicas(),
                )
            pairs = [(self._reduced(gradient), variable) for gradient, variable in pairs]
        return self._optimizer.apply_gradients(pairs, global_step, name)

    def _reduced(self, gradient: Any) -> Any:
        if gradient is None:
            return None
        return tf.compat.v1.tpu.cross_replica_sum(gradient, self._group_assignment)

    def get_slot(self, var: Any, name: str) -> Any:
        """A slot variable of the wrapped optimizer."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """The names of the wrapped optimizer's slots."""
        return list(self._optimizer.get_slot_names())

    def variables(self) -> list[Any]:
        """The wrapped optimizer's variables."""
        return list(self._optimizer.variables())


def _replicas() -> int:
    return tpu_function.get_tpu_context().number_of_shards or 1


def cross_replica_sum(
    x: Any, group_assignment: Sequence[Sequence[int]] | None = None, name: str | None = None
) -> Any:
    """The sum of a tensor over all replicas, in each of them; off the TPU the tensor itself.

    Args:
      x: this replica's tensor.
      group_assignment: lists of replica numbers that sum among themselves; None for all.
      name: of the op.
    """
    if _replicas() == 1:
        return tf.identity(x, name=name)
    return tf.compat.v1.tpu.cross_replica_sum(x, group_assignment, name=name)
