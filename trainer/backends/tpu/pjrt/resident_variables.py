"""Keeps the copies of a step's variables on PJRT devices and in the session consistent."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.devices import jax_client
from tpuserve.errors import WrongContext
from tpuserve.pjrt import row_shards
from tpuserve.pjrt.step_program import StepProgram
from tpuserve.stablehlo.abstract_tensor import sizes_of
from trainer.backends.tpu.pjrt.variable_uses import shared_name
from trainer.hosts.group import current_group

# The largest number of bytes that a host sends to the other hosts at once, when it sends rows of a
# variable that is divided among the replicas.
_MAX_BYTES = 2**26


class ResidentVariables:
    """The variables of a step; the devices have one copy of each, and the session has another.

    When one copy has changed, the other copy is outdated. The outdated copy is updated only when a
    step or a `session.run` is about to use it.

    On several hosts, each host has a session of its own.
    """

    def __init__(self, program: StepProgram) -> None:
        self._program, self._hosts = program, current_group()
        self._row_shardings = program.step.row_shardings
        self._thread = threading.get_ident()
        self._number = self._hosts.serve_calls(self._send_rows)
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
            for index, spec in enumerate(program.step.variables):
                handle = handles[spec.name]
                shape = None if index in program.step.batch_variables else spec.shape
                value = tf.compat.v1.placeholder(spec.dtype, shape)
                self._values.append(value)
                self._reads.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=spec.dtype))
                self._assigns.append(tf.raw_ops.AssignVariableOp(resource=handle, value=value))
        self.forget_devices()

    def forget_devices(self) -> None:
        """Mark the values in the session as the newest ones, because the session is new."""
        self._newer_in_session = set(self.indices.values())
        self._newer_on_devices: set[int] = set()

    def copy_to_devices(self, session: Any) -> dict[str, Any]:
        """Copy variables from the session to the devices, if the session has their newest values.

        Returns:
          Name of a copied variable → its value, an array.
        """
        indices = sorted(self._newer_in_session)
        if self._hosts.size > 1:
            indices = self._hosts.broadcast("the variables to copy", indices)
        values = dict(
            zip(indices, session.run([self._reads[index] for index in indices]), strict=True)
        )
        if self._hosts.size > 1:
            self._copy_from_first_host(values)
        else:
            for index, value in values.items():
                self._program.set_variable(index, value)
        self._newer_in_session.clear()
        names = list(self.indices)
        return {names[index]: value for index, value in values.items()}

    def _copy_from_first_host(self, values: dict[int, Any]) -> None:
        """Copy host 0's values of variables to the devices of all hosts."""
        whole = [index for index in values if index not in self._row_shardings]
        with self._hosts.needing_all():
            received = jax_client.broadcast_arrays(
                [values[index] for index in whole], is_source=self._hosts.is_first
            )
            values.update(zip(whole, received, strict=True))
            for index in whole:
                self._program.set_variable(index, values[index])
            for index in sorted(values.keys() - set(whole)):
                shards = list(self._receive_shards(index, values[index]))
                self._program.set_shards(index, shards)
        if not self._hosts.is_first:
            # Mark the values on the devices as the newest ones. They are host 0's values, which can
            # differ from the values in the session of this host.
            self._newer_on_devices.update(values, self._newer_in_session)

    def _receive_shards(self, index: int, value: Any) -> Iterator[Any]:
        sharding = self._row_shardings[index]
        for replica in range(sharding.num_replicas):
            shard = row_shards.take_shard(value, sharding, replica)
            shard = _broadcast_rows(shard, is_source=self._hosts.is_first)
            if replica in self._program.local_replicas:
                yield shard

    def copy_to_session(self, session: Any, indices: Iterable[int]) -> None:
        """Copy variables to the session, unless the session has their newest values already.

        Raises:
          WrongContext: with several hosts, a variable whose rows are divided is used on a host
            other than host 0, or by a host_call.
        """
        newer = sorted(self._newer_on_devices.intersection(indices))
        if not newer:
            return
        divided = [index for index in newer if index in self._row_shardings]
        if self._hosts.size > 1 and divided:
            self._check_collection(divided)
            self._hosts.call_others(self._number, divided)
            whole = [index for index in newer if index not in divided]
            values = dict(zip(whole, self._program.get_variables(whole), strict=True))
            values.update(self._exchange_rows(divided))
        else:
            values = dict(zip(newer, self._program.get_variables(newer), strict=True))
        session.run(
            [self._assigns[index] for index in newer],
            {self._values[index]: values[index] for index in newer},
        )
        self._newer_on_devices.difference_update(newer)

    def _check_collection(self, divided: Sequence[int]) -> None:
        """Check that this thread is allowed to collect rows of variables from the other hosts."""
        if self._hosts.is_first and threading.get_ident() == self._thread:
            return
        place = "a host_call" if self._hosts.is_first else f"host {self._hosts.index}"
        name = list(self.indices)[divided[0]]
        raise WrongContext(
            f"{place} uses the variable {name!r}, whose rows are divided among the hosts. In a "
            f"training on several hosts, only the hooks of host 0 can use the variable: those of "
            f"training_chief_hooks."
        )

    def _send_rows(self, indices: Sequence[int]) -> None:
        """Send this host's rows of some variables to host 0, which calls this method remotely."""
        for _ in self._exchange_rows(indices):
            pass

    def _exchange_rows(self, indices: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Exchange rows of variables between the hosts; all hosts call this method together."""
        for index in indices:
            spec, sharding = self._program.step.variables[index], self._row_shardings[index]
            value = np.zeros(sizes_of(spec.shape), spec.dtype.as_numpy_dtype)
            shards = self._program.get_shards(index)
            with self._hosts.needing_all():
                for replica in range(sharding.num_replicas):
                    is_source = replica in self._program.local_replicas
                    shard = (
                        next(shards)
                        if is_source
                        else row_shards.take_shard(value, sharding, replica)
                    )
                    shard = _broadcast_rows(shard, is_source=is_source)
                    row_shards.put_shard(value, sharding, replica, shard)
            yield index, value

    def mark_changed_on_devices(self, indices: Sequence[int]) -> None:
        """Record that steps have changed variables on the devices."""
        self._newer_on_devices.update(indices)

    def mark_changed_in_session(self, indices: Iterable[int]) -> None:
        """Record that a `session.run` may have changed variables in the session."""
        self._newer_in_session.update(indices)
        self._newer_on_devices.difference_update(indices)


def _broadcast_rows(rows: Any, *, is_source: bool) -> Any:
    """Send rows of a variable from one host to all hosts; all hosts call this together."""
    size = max(_MAX_BYTES // max(rows[:1].nbytes, 1), 1)
    parts = [
        jax_client.broadcast_arrays([rows[start : start + size]], is_source=is_source)[0]
        for start in range(0, len(rows), size)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
