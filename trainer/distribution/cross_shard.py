"""CrossShardOptimizer, which averages the gradients of a step over the replicas, on any device."""

import logging
import operator
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.tensorflow_internals import tpu_function

logger = logging.getLogger("tensorflow.trainer")

_MEAN = tf.compat.v1.losses.Reduction.MEAN
_SUM = tf.compat.v1.losses.Reduction.SUM


class CrossShardOptimizer(tf.compat.v1.train.Optimizer):
    """Optimizer wrapper: each replica applies the mean, or the sum, of all replicas' gradients.

    `apply_gradients` sums the gradients over the replicas. For the mean, `minimize` and
    `compute_gradients` first divide the loss by the number of replicas. Gradients from another
    source, such as tf.gradients, are not divided: divide them yourself if you want their mean.
    TensorFlow's CrossShardOptimizer behaves in the same way.

    A run on a CPU or GPU has one replica, whose gradients are the mean already. In such a run the
    wrapper does not change the gradients, and the graph has no op that only a TPU can run.
    """

    def __init__(
        self,
        opt: Any,
        reduction: str = _MEAN,
        name: str = "CrossShardOptimizer",
        group_assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Wrap an optimizer, which computes and applies the gradients.

        Args:
          opt: a tf.compat.v1.train.Optimizer.
          reduction: tf.compat.v1.losses.Reduction.MEAN or SUM.
          name: name prefix of the optimizer's ops.
          group_assignment: groups of replica numbers, all of the same size; gradients are averaged
            or summed within each group. None makes one group of all replicas.

        Raises:
          InvalidSetting: the reduction is unknown, `opt` is not a TensorFlow 1 optimizer, or the
            groups have different sizes.
        """
        if reduction not in (_MEAN, _SUM):
            raise InvalidSetting(
                f"CrossShardOptimizer reduction is {reduction!r}. Give Reduction.MEAN or "
                f"Reduction.SUM."
            )
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise InvalidSetting(
                f"CrossShardOptimizer got {opt!r}, which is not a "
                f"tf.compat.v1.train.Optimizer. Wrap an optimizer of tf.compat.v1.train; Keras "
                f"optimizers reduce gradients in another way."
            )
        super().__init__(use_locking=False, name=name)
        self._optimizer = opt
        self._reduction = reduction
        self._group_assignment = _parse_groups(group_assignment)
        self._has_scaled = False

    def compute_gradients(
        self, loss: Any, var_list: Any = None, **kwargs: Any
    ) -> list[tuple[Any, Any]]:
        """Return the gradients of this replica's loss, as (gradient, variable) pairs.

        For Reduction.MEAN, the loss is first divided by the number of replicas of a group. The sum
        of the gradients over the group is then the mean of the undivided gradients.

        Raises:
          InvalidSetting: the groups do not name each replica once.
        """
        replicas = _num_replicas()
        if replicas > 1 and self._group_assignment:
            _check_replicas(self._group_assignment, replicas)
        if replicas > 1 and self._reduction == _MEAN:
            group = len(self._group_assignment[0]) if self._group_assignment else replicas
            loss = loss * (1.0 / group)
        self._has_scaled = True
        return list(self._optimizer.compute_gradients(loss, var_list=var_list, **kwargs))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Return the op that sums gradients over the replicas, and applies the sums to variables.

        Args:
          grads_and_vars: (gradient, variable) pairs of this replica.
          global_step: a variable that the op increments; None for none.
          name: the name of the op.
        """
        pairs = list(grads_and_vars)
        if _num_replicas() > 1:
            if self._reduction == _MEAN and not self._has_scaled:
                logger.warning(
                    "CrossShardOptimizer sums the gradients of %d replicas, and does not average "
                    "them: they are not from its compute_gradients, which scales the loss for "
                    "that. Divide them by the number of replicas if you want their mean.",
                    _num_replicas(),
                )
            pairs = [(self._reduce(gradient), variable) for gradient, variable in pairs]
        return self._optimizer.apply_gradients(pairs, global_step, name)

    def _reduce(self, gradient: Any) -> Any:
        if gradient is None:
            return None
        return tf.compat.v1.tpu.cross_replica_sum(gradient, self._group_assignment)

    def get_slot(self, var: Any, name: str) -> Any:
        """Return a slot variable of the wrapped optimizer."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the wrapped optimizer's slots."""
        return list(self._optimizer.get_slot_names())

    def variables(self) -> list[Any]:
        """Return the wrapped optimizer's variables."""
        return list(self._optimizer.variables())


def _parse_groups(groups: Sequence[Sequence[int]] | None) -> list[list[int]] | None:
    """Return groups of replica numbers as lists; None for one group of all replicas."""
    if groups is None:
        return None
    try:
        lists = [[operator.index(replica) for replica in group] for group in groups]
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"CrossShardOptimizer group_assignment is {groups!r}. Give a list of lists of replica "
            f"numbers, as [[0, 1], [2, 3]]."
        ) from error
    if len({len(group) for group in lists}) > 1:
        raise InvalidSetting(
            f"CrossShardOptimizer group_assignment is {lists}, whose groups have different sizes. "
            f"Give groups of the same size, as the op CrossReplicaSum requires."
        )
    return lists or None


def _check_replicas(groups: list[list[int]], replicas: int) -> None:
    if sorted(replica for group in groups for replica in group) != list(range(replicas)):
        raise InvalidSetting(
            f"CrossShardOptimizer group_assignment is {groups}, and the number of replicas is "
            f"{replicas}. Name each of the replicas 0 to {replicas - 1} once."
        )


def _num_replicas() -> int:
    return tpu_function.get_tpu_context().number_of_shards or 1


def cross_replica_sum(
    x: Any, group_assignment: Sequence[Sequence[int]] | None = None, name: str | None = None
) -> Any:
    """Return the sum of a tensor over all replicas; with one replica, the tensor itself.

    Args:
      x: this replica's tensor, of any shape.
    """
    if _num_replicas() == 1:
        return tf.identity(x, name=name)
    return tf.compat.v1.tpu.cross_replica_sum(x, group_assignment, name=name)
