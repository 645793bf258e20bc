"""Receivers of the outfeed, which pass the replicas' values to the step parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

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
        has_static_rows: bool = False,
    ) -> None:
        """Build the host's ops of all step parts.

        Args:
          outfeed: describes the tensors, among them the mask.
          topology: determines the number of replicas.
          parts: the step parts.
          received: the tensors of one outfeed: those of the first replica, of the second, and so
          on.
          has_static_rows: whether the rows of a step are either all real or all padding, so that
            the host's ops can have static shapes.
        """
        self._outfeed = outfeed
        # Under BROADCAST all replicas have the same rows, so use only the first replica's values.
        is_broadcast = topology.input_mode == InputPipelineConfig.BROADCAST
        self._replicas = 1 if is_broadcast else topology.replicas
        self._placeholders = outfeed.pack(
            [
                tf.compat.v1.placeholder(
                    spec.dtype,
                    [spec.shape[0] * self._replicas if has_static_rows else None, *spec.shape[1:]],
                )
                for spec in outfeed.specs
            ]
        )
        self._parts = [part for part in parts if part.name in self._placeholders]
        host_ops = {part.name: part.host_ops(self._placeholders[part.name]) for part in self._parts}
        self._host_ops = {name: ops for name, ops in host_ops.items() if ops is not None}
        self.fetches: Any = received
        self.num_full_batches = 0
        self.is_at_end = False

    def receive(self, session: Any, values: Any) -> None:
        """Hand the rows that are not padding to the step parts; without any, set is_at_end."""
        step = self._decode(values)
        if not step.num_real_rows.any():
            self.is_at_end = True
            return
        self.num_full_batches += int(step.is_full)
        rows = step.without_padding()
        feeds: dict[Any, Any] = {}
        for name in self._host_ops:
            placeholders = tf.nest.flatten(self._placeholders[name])
            feeds.update(zip(placeholders, tf.nest.flatten(rows[name]), strict=True))
        host_values = session.run(self._host_ops, feeds) if self._host_ops else {}
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
