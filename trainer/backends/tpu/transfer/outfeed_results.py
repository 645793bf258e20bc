"""Receivers of the outfeed, which pass the replicas' values to the step parts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.backends.tpu.transfer.outfeed import Outfeed
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology

MASK = "mask"


class Receiver(Protocol):
    """A consumer of outfeed tensors: the part of `StepPart` that outfeed receivers call."""

    name: str

    def host_ops(self, tensors: Any) -> Any:
        """Build the host's ops for the tensors of one outfeed."""

    def receive(self, values: Any) -> None:
        """Process the values of one outfeed."""


class OutfeedReceiver(Protocol):
    """Receives the outfeeds of a loop: for each step, the tensors that all replicas send.

    Attributes:
      fetches: the ops and tensors that receive one outfeed; None if nothing is sent.
    """

    fetches: Any

    def receive(self, session: Any, values: Any) -> None:
        """Hand the values of one outfeed to the step parts.

        Args:
          session: the session that ran `fetches`.
          values: the values of `fetches`.
        """


class UnpaddedOutfeedReceiver:
    """Receiver for batches without padding: the host's ops use all rows of the outfeed.

    So the ops read the received tensors without placeholders, in the `session.run` that receives
    the tensors.
    """

    def __init__(self, outfeed: Outfeed, parts: Sequence[Receiver], received: list[Any]) -> None:
        """Build the host's ops of all step parts.

        Args:
          outfeed: describes the tensors.
          parts: the step parts.
          received: the tensors of one outfeed in the order of `outfeed.specs`, concatenated over
            all replicas; empty if nothing is sent.
        """
        tensors = outfeed.pack(received) if received else {}
        self._parts = [part for part in parts if part.name in tensors]
        self.fetches: Any = {}
        for part in self._parts:
            fetches = part.host_ops(tensors[part.name])
            self.fetches[part.name] = tensors[part.name] if fetches is None else fetches
        if not self.fetches:
            self.fetches = None

    def receive(self, session: Any, values: Any) -> None:
        """Hand the values of one outfeed to the step parts."""
        for part in self._parts:
            part.receive(values[part.name])


class HostOps:
    """The host's ops of all step parts, and the placeholders of their tensors."""

    def __init__(self, outfeed: Outfeed, parts: Sequence[Receiver], replicas: int | None) -> None:
        """Build the ops.

        Args:
          outfeed: describes the tensors of one replica.
          parts: the step parts.
          replicas: the number of replicas whose tensors are concatenated; None for a number that
            varies.
        """
        self._placeholders = outfeed.pack(
            [
                tf.compat.v1.placeholder(
                    spec.dtype,
                    [None if replicas is None else spec.shape[0] * replicas, *spec.shape[1:]],
                )
                for spec in outfeed.specs
            ]
        )
        # The name argument and the variable of each variable that get_variable cannot find again.
        self._variables: list[tuple[Any, Any]] = []
        self._is_in_get_variable = False
        scope = tf.compat.v1.get_variable_scope()
        with (
            tf.compat.v1.variable_scope(
                scope, custom_getter=self._get_variable, auxiliary_name_scope=False
            ),
            tf.variable_creator_scope(self._record_variable),
        ):
            ops = {part.name: part.host_ops(self._placeholders[part.name]) for part in parts}
        self._ops = {name: op for name, op in ops.items() if op is not None}

    @contextmanager
    def shared_variables(self) -> Iterator[None]:
        """Return a context in which ops built alike get the variables of these ops.

        Raises:
          InvalidSetting: the ops are not built alike: they create other variables.
        """
        variables = iter(self._variables)

        def reuse(create: Callable[..., Any], **arguments: Any) -> Any:
            name, variable = next(variables, (None, None))
            if variable is None or name != arguments.get("name"):
                raise InvalidSetting("the function creates other variables without static shapes")
            return variable

        scope = tf.compat.v1.get_variable_scope()
        with (
            tf.compat.v1.variable_scope(
                scope, reuse=tf.compat.v1.AUTO_REUSE, auxiliary_name_scope=False
            ),
            tf.variable_creator_scope(reuse),
        ):
            yield

    def run(self, session: Any, rows: Any) -> Any:
        """Run the ops on the rows of one outfeed; return the values by name of the step part."""
        if not self._ops:
            return {}
        feeds: dict[Any, Any] = {}
        for name in self._ops:
            placeholders = tf.nest.flatten(self._placeholders[name])
            feeds.update(zip(placeholders, tf.nest.flatten(rows[name]), strict=True))
        return session.run(self._ops, feeds)

    def _get_variable(self, getter: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._is_in_get_variable = True
        try:
            return getter(*arguments, **options)
        finally:
            self._is_in_get_variable = False

    def _record_variable(self, create: Callable[..., Any], **arguments: Any) -> Any:
        variable = create(**arguments)
        if not self._is_in_get_variable:
            self._variables.append((arguments.get("name"), variable))
        return variable


class PaddedOutfeedReceiver:
    """Receiver for batches with padding: feeds the rows that are not padding to the host's ops.

    The outfeed contains a mask that marks the rows of padding. So one `session.run` receives the
    outfeed, and a second one feeds the rows that are not padding to placeholders of the host's ops.

    Attributes:
      fetches: the tensors of one outfeed: those of the first replica, of the second, and so on.
      num_full_batches: number of batches received that had no row of padding.
      is_at_end: whether a batch that is all padding has been received, which marks the end of the
        input.
    """

    def __init__(
        self,
        outfeed: Outfeed,
        topology: BatchTopology,
        parts: Sequence[Receiver],
        received: list[Any],
        *,
        has_full_batches: bool = False,
        has_only_full_steps: bool = False,
    ) -> None:
        """Build the host's ops of all step parts.

        Args:
          outfeed: describes the tensors, among them the mask.
          topology: determines the number of replicas.
          parts: the step parts.
          received: the tensors of one outfeed: those of the first replica, of the second, and so
            on.
          has_full_batches: whether the rows of a replica's batch are either all real or all
            padding. The host's ops of a full step can then have static shapes.
          has_only_full_steps: whether the rows of a step are either all real or all padding.
        """
        # Under BROADCAST all replicas have the same rows, so use only the first replica's values.
        is_broadcast = topology.input_mode == InputPipelineConfig.BROADCAST
        self._outfeed = outfeed
        self._replicas = 1 if is_broadcast else topology.replicas
        self._parts: Sequence[Receiver] = [part for part in parts if part.name in outfeed.template]
        self._host_ops = HostOps(outfeed, self._parts, self._replicas if has_full_batches else None)
        self._partial_host_ops: HostOps | None = None
        self._partial_error: Exception | None = None
        if has_full_batches and not has_only_full_steps:
            self._build_partial_host_ops()
        self.fetches: Any = received
        self.num_full_batches = 0
        self.is_at_end = False

    def _build_partial_host_ops(self) -> None:
        """Build the host's ops for the last step, in which only some replicas may have a batch.

        They share the variables of the host's ops of full steps, such as those of metrics.
        """
        try:
            with self._host_ops.shared_variables():
                self._partial_host_ops = HostOps(self._outfeed, self._parts, None)
        except Exception as error:
            # The user's function needs the static shapes of a full step. That matters only if the
            # last step is not full.
            self._partial_error = error

    def receive(self, session: Any, values: Any) -> None:
        """Hand the rows that are not padding to the step parts; without any, set is_at_end.

        Raises:
          InvalidSetting: only some replicas had a batch, and the host's ops need all.
        """
        step = self._decode(values)
        if not step.num_real_rows.any():
            self.is_at_end = True
            return
        self.num_full_batches += int(step.is_full)
        host_ops = self._host_ops
        if self._partial_error is not None and not step.is_full:
            fed = int((step.num_real_rows > 0).sum())
            raise InvalidSetting(
                f"the input has ended within a step: {fed} of {self._replicas} replicas had a "
                f"batch, and metric_fn or the host_call fails without the static shapes of a full "
                f"step: {self._partial_error}. Give input_fn a number of batches that is a "
                f"multiple of {self._replicas}, or let the function do without static shapes."
            ) from self._partial_error
        if self._partial_host_ops is not None and not step.is_full:
            host_ops = self._partial_host_ops
        rows = step.without_padding()
        host_values = host_ops.run(session, rows)
        for part in self._parts:
            part.receive(host_values[part.name] if part.name in host_values else rows[part.name])

    def _decode(self, values: Sequence[Any]) -> "StepResults":
        count = len(self._outfeed.specs)
        return StepResults(
            [
                self._outfeed.pack(values[count * replica : count * (replica + 1)])
                for replica in range(self._replicas)
            ]
        )


@dataclass(frozen=True)
class StepResults:
    """The arrays that the replicas sent in one step.

    Attributes:
      replicas: for each replica the nest of arrays; the entry "mask" is int32 [rows], 1 for a real
        row and 0 for padding.
    """

    replicas: list[Any]

    @cached_property
    def num_real_rows(self) -> Any:
        """The number of rows of each replica that are not padding: int [replicas]."""
        return np.array([int(arrays[MASK].sum()) for arrays in self.replicas])

    @property
    def is_full(self) -> bool:
        """Whether no row of any replica is padding."""
        return all(arrays[MASK].all() for arrays in self.replicas)

    def without_padding(self) -> Any:
        """Return one nest of arrays: the rows of all replicas that are not padding, concatenated.

        An array that does not have one row for each row of the batch is included as a whole, for
        each replica with at least one row that is not padding.
        """
        masks = [arrays[MASK].astype(bool) for arrays in self.replicas]

        def real_rows(*arrays: Any) -> Any:
            pairs = list(zip(arrays, masks, strict=True))
            if all(len(array) == len(mask) for array, mask in pairs):
                return np.concatenate([array[mask] for array, mask in pairs])
            return np.concatenate([array for array, mask in pairs if mask.any()])

        return tf.nest.map_structure(real_rows, *self.replicas)
