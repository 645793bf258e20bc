"""The interface of a TPU runtime: everything that differs between kinds of TPU systems."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from trainer.config.run_config import RunConfig
from trainer.distribution.topology import VERBS, BatchTopology, TpuSlice

logger = logging.getLogger("tensorflow.trainer")


@dataclass(frozen=True)
class PreparedTargets:
    """The ops and tensors that a session runs in place of those of the TPU graph.

    Attributes:
      targets: in the order of the original targets.
      end_infeeds: op that wakes every core waiting for its infeed: a core can still take the
        batches in its queue, and then taking raises tf.errors.OutOfRangeError. None if only
        closing the session wakes the cores.
      end_outfeeds: op that wakes every host waiting for an outfeed, likewise.
    """

    targets: list[Any]
    end_infeeds: Any = None
    end_outfeeds: Any = None


class TpuRuntime(ABC):
    """A TPU system and the way to run graphs on it.

    Attributes:
      system: the hosts and cores of the system.
      master: the session target.
      only_first_core_computes: whether a replica with several cores computes on the first core
        alone, so that the first core is fed whole tensors.
    """

    system: TpuSlice
    master: str
    only_first_core_computes: bool

    @abstractmethod
    def assign_cores(self, topology: BatchTopology, config: RunConfig) -> Any:
        """Return the tf.tpu.experimental.DeviceAssignment of a run with model parallelism."""

    @abstractmethod
    def prepare_targets(self, targets: Sequence[Any]) -> PreparedTargets:
        """Return what a session must run for these ops and tensors of the default graph."""

    @abstractmethod
    def session_config(self, proto: Any) -> Any:
        """Return the ConfigProto of a session on the system.

        Args:
          proto: the ConfigProto that the user or the trainer chose; it is not changed.
        """

    @abstractmethod
    def initialized_system(
        self, topology: BatchTopology, config: RunConfig
    ) -> AbstractContextManager[None]:
        """Return a context in which the system is initialised."""

    @abstractmethod
    def preemption_hooks(self, config: RunConfig) -> tuple[Any, ...]:
        """Return the SessionRunHooks that handle the loss of the system during a run."""

    @abstractmethod
    def describe(self) -> str:
        """Return a remark about the system for the log, which may be empty."""

    def device_assignment(self, topology: BatchTopology, config: RunConfig) -> Any:
        """Return the cores of each replica; None for one core each, in the order of numbers."""
        return self.assign_cores(topology, config) if topology.is_model_parallel else None

    def log_system(self, topology: BatchTopology) -> None:
        """Log the system and the topology that a mode runs with."""
        logger.info(
            "%s on %s%s: %d replicas, %d rows each (global batch %s), input %s",
            VERBS[topology.mode],
            topology.system,
            self.describe(),
            topology.replicas,
            topology.batch_size_for_model_fn,
            topology.global_batch_size,
            getattr(topology.input_mode, "name", topology.input_mode),
        )
        if self.only_first_core_computes and topology.cores_per_replica > 1:
            logger.info(
                "each replica computes on the first of its %d emulated cores; the others stay idle",
                topology.cores_per_replica,
            )
