"""The tf.distribute.Strategy that model_fn finds when its step runs on several replicas.

TensorFlow's optimizers, moving averages and batch normalization ask the strategy to sum over the
replicas. model_fn is called once, and its ops run on every replica.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.tensorflow_internals import gen_xla_ops, get_private_attribute

v1 = tf.compat.v1


class ReplicaStrategy(tf.compat.v1.distribute.Strategy):
    """A strategy whose replicas run the ops of one graph, with equal values of the variables."""

    def __init__(self, replicas: int) -> None:
        super().__init__(_ReplicaStrategyExtended(self, replicas))

    def call_model_fn(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call model_fn in the context of a replica; return its spec, with the loss to report.

        As in an Estimator, TensorFlow 1's optimizers divide the loss by the number of replicas,
        unless it comes from tf.losses with Reduction.SUM. A loss that was divided is reported as
        the mean over the replicas, and any other loss as their sum.
        """
        with self.scope(), get_private_attribute(self, "_scale_loss_for_estimator_enabled")():
            spec = self.extended.call_for_each_replica(call, args=arguments)
        graph = v1.get_default_graph()
        if get_private_attribute(graph, "_is_loss_scaled_by_optimizer"):
            return spec
        # The trainer reports the mean over the replicas.
        return spec._replace(loss=spec.loss * self.num_replicas_in_sync)


def sum_over_replicas(value: Any) -> Any:
    """Return the sum of a tensor, or of IndexedSlices, over the replicas of the step.

    Raises:
      InvalidSetting: the devices cannot sum tensors of this dtype.
    """
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype.is_integer and tensor.dtype not in (tf.int32, tf.uint32):
        raise InvalidSetting(
            f"model_fn sums {tensor.name} of {tensor.dtype.name} over the replicas of "
            f"train_distribute, which sum int32, uint32 and floating-point numbers. Cast it first."
        )
    return v1.tpu.cross_replica_sum(tensor)


class _ReplicaStrategyExtended(tf.compat.v1.distribute.StrategyExtended):
    """Implements the methods that TensorFlow calls for a `ReplicaStrategy`."""

    experimental_between_graph = False
    experimental_should_init = True
    should_checkpoint = True
    should_save_summary = True

    def __init__(self, strategy: ReplicaStrategy, replicas: int) -> None:
        super().__init__(strategy)
        self._replicas = replicas

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._replicas

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The devices that this graph names: one, because all replicas run its ops."""
        return ("",)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The devices of the variables."""
        return self.worker_devices

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        replica = gen_xla_ops.xla_replica_id()
        with tf.distribute.ReplicaContext(self._container_strategy(), replica):
            return fn(*args, **kwargs)

    def _get_local_replica_id(self, replica_id_in_sync_group: Any) -> Any:
        return replica_id_in_sync_group

    def _create_variable(self, next_creator: Any, **settings: Any) -> Any:
        settings.pop("colocate_with", None)
        variable = next_creator(**settings)
        if settings.get("synchronization") == tf.VariableSynchronization.ON_READ:
            # In a MirroredStrategy each replica has a value of its own; a checkpoint has their
            # mean or sum.
            aggregation = settings.get("aggregation")
            if aggregation == tf.VariableAggregation.MEAN:
                self._reduce_changes(variable, tf.distribute.ReduceOp.MEAN, "assign")
            if aggregation in (tf.VariableAggregation.MEAN, tf.VariableAggregation.SUM):
                operation = tf.distribute.ReduceOp(aggregation.name)
                self._reduce_changes(variable, operation, "assign_add", "assign_sub")
        return variable

    def _reduce_changes(self, variable: Any, operation: Any, *methods: str) -> None:
        """Let a replica change a variable by the mean or sum of the changes of all replicas."""
        for name in methods:
            change = getattr(variable, name)

            def change_by_all(value: Any, *options: Any, change: Any = change, **named: Any) -> Any:
                if not v1.distribute.in_cross_replica_context():
                    value = self._reduce_to(operation, value, None, None)
                return change(value, *options, **named)

            setattr(variable, name, change_by_all)

    def variable_created_in_scope(self, v: Any) -> bool:
        """Return whether a variable belongs to this strategy: all of them do."""
        return True

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        total = sum_over_replicas(value)
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            return tf.cast(total / self._replicas, total.dtype)
        return total

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        return tf.nest.map_structure(
            lambda part: self._reduce_to(reduce_op, part, None, options), value
        )

    def _gather_to_implementation(
        self, value: Any, destinations: Any, axis: Any, options: Any
    ) -> Any:
        raise InvalidSetting(
            "model_fn gathers tensors of all replicas of train_distribute, and only sums over them "
            "are possible. Call all_reduce in the place of all_gather."
        )

    def _update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        return self._update_non_slot(var, fn, (var, *args), kwargs, group)

    def _update_non_slot(
        self, colocate_with: Any, fn: Any, args: Any, kwargs: Any, group: bool
    ) -> Any:
        result = fn(*args, **kwargs)
        return result if group else tf.nest.map_structure(self._local_results, result)

    def _replica_ctx_update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        return self._update(var, fn, args, kwargs, group)

    def non_slot_devices(self, var_list: Any) -> Any:
        """Return where an optimizer's variables are that belong to no other variable."""
        return min(var_list, key=lambda variable: variable.name)

    def read_var(self, v: Any) -> Any:
        """Return the value of a variable on this replica."""
        return tf.identity(v)

    def value_container(self, value: Any) -> Any:
        """Return the value itself, which is not one of several."""
        return value

    def _in_multi_worker_mode(self) -> bool:
        return False

    @property
    def _global_batch_size(self) -> bool:
        return False
