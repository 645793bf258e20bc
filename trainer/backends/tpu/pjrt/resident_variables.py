"""The variables of a step, each of which has its newest value on the devices or in the session."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve import jax_client
from tpuserve.pjrt.step_program import StepProgram
from trainer.backends.tpu.pjrt.variable_uses import shared_name
from trainer.hosts.group import current_group


class ResidentVariables:
    """Copies variables between the session and the devices, if the other side has a newer value.

    On several hosts, each host has a session of its own. The values in the session of host 0 are
    copied to the devices of all hosts: initial values are random, so they differ between hosts, and
    only host 0 runs the chief's hooks, which may assign variables.
    """

    def __init__(self, program: StepProgram) -> None:
        """Build the ops that read and assign the variables, in the default graph.

        Args:
          program: the program that holds the variables on the devices.
        """
        self._program, self._hosts = program, current_group()
        graph = tf.compat.v1.get_default_graph()
        handles = {
            shared_name(operation): operation.outputs[0]
            for operation in graph.get_operations()
            if operation.type == "VarHandleOp"
        }
        self.indices = {spec.name: index for index, spec in enumerate(program.step.variables)}
        self._reads: list[Any] = []
        self._values: list[Any] = []
        self._assigns: list[Any] = []
        with tf.compat.v1.name_scope("pjrt_variables"):
            for spec in program.step.variables:
                handle = handles[spec.name]
                value = tf.compat.v1.placeholder(spec.dtype, spec.shape)
                self._values.append(value)
                self._reads.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=spec.dtype))
                self._assigns.append(tf.raw_ops.AssignVariableOp(resource=handle, value=value))
        self.forget_devices()

    def forget_devices(self) -> None:
        """Mark all values in the session as the newest ones; called for a new session."""
        self._newer_in_session = set(self.indices.values())
        self._newer_on_devices: set[int] = set()

    def copy_to_devices(self, session: Any) -> dict[str, Any]:
        """Copy the variables that are newer in the session to the devices.

        Returns:
          Name of a copied variable → its value.
        """
        indices = sorted(self._newer_in_session)
        if self._hosts.size > 1:
            indices = self._hosts.broadcast("the variables to copy", indices)
        values = session.run([self._reads[index] for index in indices])
        if self._hosts.size > 1:
            with self._hosts.needing_all():
                values = jax_client.broadcast_arrays(values, is_source=self._hosts.is_first)
            if not self._hosts.is_first:
                # The devices now have the values of host 0, which may differ from those in this
                # session.
                self._newer_on_devices.update(indices, self._newer_in_session)
        for index, value in zip(indices, values, strict=True):
            self._program.set_variable(index, value)
        self._newer_in_session.clear()
        names = list(self.indices)
        return {names[index]: value for index, value in zip(indices, values, strict=True)}

    def copy_to_session(self, session: Any, indices: Iterable[int]) -> None:
        """Copy variables to the session, unless the session has their newest values already.

        Args:
          session: the session.
          indices: the indices of the variables that the session is about to use.
        """
        newer = sorted(self._newer_on_devices.intersection(indices))
        if not newer:
            return
        values = self._program.get_variables(newer)
        session.run(
            [self._assigns[index] for index in newer],
            {self._values[index]: value for index, value in zip(newer, values, strict=True)},
        )
        self._newer_on_devices.difference_update(newer)

    def mark_changed_on_devices(self, indices: Sequence[int]) -> None:
        """Record that a dispatch has changed variables."""
        self._newer_on_devices.update(indices)

    def mark_changed_in_session(self, indices: Iterable[int]) -> None:
        """Record that a `session.run` may have changed variables."""
        self._newer_in_session.update(indices)
        self._newer_on_devices.difference_update(indices)
