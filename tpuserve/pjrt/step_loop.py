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
    `ReplicaStep`), and the variables.
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
        """
        jax: Any = importlib.import_module("jax")

        axes = ((AXIS,) if index in self.divided_variables else () for index in range(count))
        return tuple(jax.sharding.PartitionSpec(*axis) for axis in axes)


def build_step_loop(
    exported: Any, layout: StepLayout, mesh: Any, capacity: int, *, gathers_results: bool = False
) -> Any:
    """Return a jitted function that runs several training steps on all replicas.

    Args:
      capacity: the largest number of steps in one call.
      gathers_results: whether each device gets the tensors that all replicas send to the host, so
        that each of several processes can read all of them.
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
