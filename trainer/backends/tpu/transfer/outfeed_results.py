"""What the replicas sent in one step, without the filler among its rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.backends.tpu.transfer.outfeed import Outfeed
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology

MASK = "mask"


class Results:
    """Reads what an outfeed that has a mask brings."""

    def __init__(self, sent: Outfeed, topology: BatchTopology) -> None:
        """The nest that was sent is a dict, with the rows' mask in "mask"."""
        self._sent = sent
        # Under BROADCAST all replicas have the same rows.
        is_same = topology.input_mode == InputPipelineConfig.BROADCAST
        self._replicas = 1 if is_same else topology.replicas

    def of_step(self, received: Sequence[Any]) -> "Step":
        """One step's results.

        Args:
          received: arrays of the first replica, then of the second, and so on.
        """
        count = len(self._sent.specs)
        return Step(
            [
                self._sent.pack(received[count * each : count * (each + 1)])
                for each in range(self._replicas)
            ]
        )


@dataclass(frozen=True)
class Step:
    """One step's results.

    Attributes:
      replicas: for each replica the nest of arrays that it sent.
    """

    replicas: list[Any]

    @cached_property
    def rows(self) -> Any:
        """How many real rows each replica had."""
        return np.array([int(each[MASK].sum()) for each in self.replicas])

    @property
    def is_whole(self) -> bool:
        """Whether every row was real."""
        return all(each[MASK].all() for each in self.replicas)

    def of_replicas(self, name: str) -> Any:
        """One array of the nest, the replicas' put together."""
        return np.concatenate([each[name] for each in self.replicas])

    def real(self) -> Any:
        """The nest with the arrays of all replicas put together, real rows only.

        An array that has not one row for each example is taken from the replicas that had any.
        """
        masks = [each[MASK].astype(bool) for each in self.replicas]

        def rows_of(*arrays: Any) -> Any:
            if all(len(array) == len(mask) for array, mask in zip(arrays, masks, strict=True)):
                return np.concatenate([a[mask] for a, mask in zip(arrays, masks, strict=True)])
            return np.concatenate([a for a, mask in zip(arrays, masks, strict=True) if mask.any()])

        return tf.nest.map_structure(rows_of, *self.replicas)
