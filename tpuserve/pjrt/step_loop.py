"""Builds a function for jax.jit that runs several training steps on all replicas, in a loop.

This module does not import TensorFlow, so that a process without TensorFlow can compile the
function.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpuserve.pjrt.replica_step import ReplicaStep

AXIS = "replica"
"""The name of the mesh axis over which the replicas are spread."""


@dataclass(frozen=True)
class StepLayout:
    """Describes the arguments and results of a training step that `ReplicaStep` has exported.

    The arguments are the tensors of a batch, the position (step numbers and seed, see
    `ReplicaStep`), and the variables. The results are the tensors for the host, a bool that says
    whether they are sent, and the new values of the variables that the step changes.

    Attributes:
      num_feeds: number of tensors of a batch.
      num_results: number of tensors that a replica sends to the host.
      changed_variables: indices of the variables that the step changes.
      checked_variables: indices of the variables in which to look for NaN and infinity after the
        steps.
      divided_variables: indices of the variables whose rows are divided among the replicas.
    """

    num_feeds: int
    num_results: int
    changed_variables: tuple[int, ...]
    checked_variables: tuple[int, ...] = ()
    divided_variables: tuple[int, ...] = ()

    @classmethod
    def from_step(cls, step: "ReplicaStep", checked: Sequence[int] = ()) -> "StepLayout":
        """Return the description of a step.

        Args:
          step: the step.
          checked: indices of the variables in which to look for NaN and infinity after the steps.
        """
        return cls(
            len(step.feeds),
            len(step.results),
            step.changed_variables,
            tuple(checked),
            tuple(step.row_shardings),
        )

    def variable_specs(self, count: int) -> tuple[Any, ...]:
        """Return a jax PartitionSpec for each variable.

        The PartitionSpec says whether the rows of the variable are divided among the replicas, or
        each replica has the whole variable.

        Args:
          count: the number of variables.
        """
        jax: Any = importlib.import_module("jax")

        axes = ((AXIS,) if index in self.divided_variables else () for index in range(count))
        return tuple(jax.sharding.PartitionSpec(*axis) for axis in axes)


def build_step_loop(
    exported: Any, layout: StepLayout, mesh: Any, capacity: int, *, gathers_results: bool = False
) -> Any:
    """Return a jitted function that runs several training steps on all replicas.

    The arguments of the function are: the variables; for each tensor of a batch, an array with the
    batches of all steps, [replicas, capacity, ...]; the index of the first step's batch in these
    arrays; the position of the first step, as `ReplicaStep` describes it; and the number of steps.
    The results are: the new variables; for each tensor that a step sends to the host, an array
    [replicas, capacity, ...]; whether each step sends these tensors, bool [capacity]; and whether
    each checked variable has only finite values, bool [checked variables].

    A variable whose rows are divided among the replicas is one array: the rows of the first
    replica and its padding rows, then those of the second replica, and so on.

    Args:
      exported: the step as a jax.export.Exported.
      layout: describes the arguments and results of the step.
      mesh: a jax Mesh with the axis `AXIS` and a device for each replica.
      capacity: the largest number of steps in one call.
      gathers_results: whether each device gets the tensors that all replicas send to the host, so
        that each of several processes can read all of them. If False, each device has only the
        tensors of its own replica.
    """
    import jax.numpy as jnp
    from jax import lax

    jax: Any = importlib.import_module("jax")

    num_results = layout.num_results

    def check_finite(index: int, value: Any) -> Any:
        is_finite = jnp.isfinite(value).all()
        if index not in layout.divided_variables:
            return is_finite
        return jax.lax.pmin(is_finite.astype(jnp.int32), AXIS).astype(bool)

    def run_steps(variables: Any, batches: Any, first: Any, position: Any, count: Any) -> Any:
        def run_step(number: Any, carried: Any) -> Any:
            variables, results, is_sent = carried
            feeds = [
                lax.dynamic_index_in_dim(batch[0], first + number, keepdims=False)
                for batch in batches
            ]
            zero = jnp.zeros_like(number)
            offset = jnp.stack([zero, number, number, zero])
            outputs = exported.call(*feeds, position + offset, *variables)
            sent, (was_sent, *new_values) = outputs[:num_results], outputs[num_results:]
            variables = list(variables)
            for index, value in zip(layout.changed_variables, new_values, strict=True):
                variables[index] = value
            results = tuple(
                lax.dynamic_update_index_in_dim(array, value[None], number, 1)
                for array, value in zip(results, sent, strict=True)
            )
            is_sent = lax.dynamic_update_index_in_dim(is_sent, was_sent, number, 0)
            return tuple(variables), results, is_sent

        results = tuple(
            jnp.zeros((1, capacity, *spec.shape), spec.dtype)
            for spec in exported.out_avals[:num_results]
        )
        variables, results, is_sent = lax.fori_loop(
            jnp.int64(0), count, run_step, (variables, results, jnp.zeros(capacity, bool))
        )
        is_finite = jnp.array(
            [check_finite(index, variables[index]) for index in layout.checked_variables], bool
        )
        if gathers_results:
            results = tuple(lax.all_gather(array, AXIS, axis=0, tiled=True) for array in results)
        return variables, results, is_sent, is_finite

    everywhere, split = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(AXIS)
    num_variables = len(exported.in_avals) - layout.num_feeds - 1
    specs = layout.variable_specs(num_variables)
    # check_vma=False: with True, jax would raise an error, because it cannot prove that all
    # replicas compute the same values of the variables.
    sharded = jax.shard_map(
        run_steps,
        mesh=mesh,
        in_specs=(specs, split, everywhere, everywhere, everywhere),
        out_specs=(specs, everywhere if gathers_results else split, everywhere, everywhere),
        check_vma=False,
    )
    return jax.jit(sharded, donate_argnums=0)
