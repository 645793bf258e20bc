"""Receives the tensors that replicas send through the outfeed, and passes them to `StepPart`s.

A `StepPart`, such as `HostCallPart`, builds ops on the host that process its tensors. The
receiver classes of this module run these ops.
"""

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
from trainer.infeed.final_batch_padding import CONTINUED

MASK = "mask"


class Receiver(Protocol):
    """The methods by which this module passes tensors from the outfeed to a `StepPart`."""

    name: str

    def host_ops(self, tensors: Any) -> Any:
        """Build the ops that the host runs with the tensors of one outfeed; see `StepPart`."""

    def receive(self, values: Any) -> None:
        """Process the values of one outfeed; see `StepPart`."""


class OutfeedReceiver(Protocol):
    """Receives the tensors that all replicas send in each step.

    Attributes:
      fetches: the ops and tensors that receive the tensors of one step (one outfeed); None if the
        replicas send nothing.
    """

    fetches: Any

    def receive(self, session: Any, values: Any) -> None:
        """Pass the values of one outfeed to the `StepPart`s that sent them."""


class UnpaddedOutfeedReceiver:
    """Receiver for batches without padding: one `session.run` receives and processes the tensors.

    The ops that process the tensors on the host read the received tensors directly, because there
    is no padding to remove first. `PaddedOutfeedReceiver` needs two `session.run`s.

    Args:
      received: the tensors of one outfeed in the order of `outfeed.specs`, concatenated over
        all replicas; empty if the replicas send nothing.
    """

    def __init__(self, outfeed: Outfeed, parts: Sequence[Receiver], received: list[Any]) -> None:
        tensors = outfeed.pack(received) if received else {}
        self._parts = [part for part in parts if part.name in tensors]
        self.fetches: Any = {}
        for part in self._parts:
            fetches = part.host_ops(tensors[part.name])
            self.fetches[part.name] = tensors[part.name] if fetches is None else fetches
        if not self.fetches:
            self.fetches = None

    def receive(self, session: Any, values: Any) -> None:
        """Pass the values of one outfeed to the `StepPart`s that sent them."""
        for part in self._parts:
            part.receive(values[part.name])


class HostOps:
    """The ops with which the host processes one outfeed, and placeholders for its tensors.

    Each `StepPart` builds its ops by `StepPart.host_ops`.

    Args:
      replicas: the number of replicas whose tensors are concatenated, which determines the
        first dimension of the placeholders; None if this dimension varies.
    """

    def __init__(self, outfeed: Outfeed, parts: Sequence[Receiver], replicas: int | None) -> None:
        self._placeholders = outfeed.pack(
            [
                tf.compat.v1.placeholder(
                    spec.dtype,
                    [None if replicas is None else spec.shape[0] * replicas, *spec.shape[1:]],
                )
                for spec in outfeed.specs
            ]
        )
        # (name, variable) for each variable that the ops create directly, and not by
        # tf.compat.v1.get_variable.
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
        """Return a context for building the ops again, with the variables of this object's ops."""
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
        """Feed the tensors of one outfeed to the placeholders, and run the ops.

        Args:
          rows: name of a `StepPart` → nest of arrays, without padding.

        Returns:
          Name of a `StepPart` → the values of its ops.
        """
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
    """Receiver for batches that can contain padding; removes the padding from received tensors.

    The outfeed contains a mask that marks the examples that are padding. One `session.run` receives
    the outfeed.

    Args:
      outfeed: describes the tensors of one replica, among them the mask.
      has_full_batches: whether the batch of each replica is either without padding or all
        padding. The host's ops for a step without padding can then have static shapes.
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
        # With the input mode BROADCAST all replicas receive the same batch, so use only the values
        # of the first replica.
        is_broadcast = topology.input_mode == InputPipelineConfig.BROADCAST
        self._outfeed = outfeed
        self._replicas = 1 if is_broadcast else topology.replicas
        self._pipelines = (
            [(0,)] if is_broadcast else [pipeline.replicas for pipeline in topology.pipelines]
        )
        # The arrays, without padding, of the received steps of a batch that is not complete.
        self._pending: list[Any] = []
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
        """Build the host's ops again, for a last step in which only some replicas have a batch."""
        try:
            with self._host_ops.shared_variables():
                self._partial_host_ops = HostOps(self._outfeed, self._parts, None)
        except Exception as error:
            # Store the error, which occurs if metric_fn or the function of the host_call needs
            # static shapes. It is raised only if some replicas have no batch in the last step.
            self._partial_error = error

    def receive(self, session: Any, values: Any) -> None:
        """Pass the values of a batch, without padding, to the `StepPart`s that sent them.

        If the batch continues in the next step, keep the values until then. If all values are
        padding, set is_at_end instead.

        Raises:
          InvalidSetting: only some replicas had a batch, and metric_fn or the function of the
            host_call needs the static shapes of a step in which all replicas have a batch.
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
        self._pending.append(step.without_padding())
        if any(step.is_continued(replicas) for replicas in self._pipelines):
            return
        pending, self._pending = self._pending, []
        rows = tf.nest.map_structure(lambda *arrays: np.concatenate(arrays), *pending)
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
      replicas: for each replica a dict with a nest of arrays for each `StepPart`. The entry "mask"
        is int32 [batch size]: 0 for an example that is padding; see `final_batch_padding`.
    """

    replicas: list[Any]

    @cached_property
    def num_real_rows(self) -> Any:
        """The number of examples of each replica that are not padding: int [replicas]."""
        return np.array([int((arrays[MASK] > 0).sum()) for arrays in self.replicas])

    @property
    def is_full(self) -> bool:
        """Whether no replica's batch contains padding."""
        return all(arrays[MASK].all() for arrays in self.replicas)

    def is_continued(self, replicas: Sequence[int]) -> bool:
        """Return whether examples of the last batch of an input pipeline are in later steps."""
        masks = [self.replicas[replica][MASK] for replica in replicas]
        last = next((mask for mask in reversed(masks) if mask.any()), None)
        return last is not None and CONTINUED in last

    def without_padding(self) -> Any:
        """Return one nest of arrays, concatenated over the replicas, without padding.

        An array whose first dimension is not the batch size, such as a loss, has no padding.
        """
        masks = [arrays[MASK].astype(bool) for arrays in self.replicas]

        def real_rows(*arrays: Any) -> Any:
            pairs = list(zip(arrays, masks, strict=True))
            if all(len(array) == len(mask) for array, mask in pairs):
                return np.concatenate([array[mask] for array, mask in pairs])
            return np.concatenate([array for array, mask in pairs if mask.any()])

        return tf.nest.map_structure(real_rows, *self.replicas)
