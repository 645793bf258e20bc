"""The interface of a TPU runtime: the operations that differ between real and emulated TPUs."""

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
    """Ops and tensors of a TPU graph (the targets), converted so that a session can run them.

    Attributes:
      end_infeeds: op that closes the infeed queues.
      end_outfeeds: op that closes the outfeed queues.
    """

    targets: list[Any]
    end_infeeds: Any = None
    end_outfeeds: Any = None


class TpuRuntime(ABC):
    """A TPU system, and the operations that prepare graphs and sessions for the system.

    Attributes:
      only_first_core_computes: whether a replica with several cores computes only on its first
        core, which is then fed whole tensors instead of parts.
      checks_variables: whether the runtime itself raises a NanError if a trainable variable
        is NaN or infinite after a loop.
    """

    system: TpuSlice
    master: str
    only_first_core_computes: bool
    checks_variables: bool = False
    has_infeed: bool = True

    @abstractmethod
    def assign_cores(self, topology: BatchTopology, config: RunConfig) -> Any:
        """Return the tf.tpu.experimental.DeviceAssignment of a run with model parallelism."""

    @abstractmethod
    def prepare_targets(self, targets: Sequence[Any], topology: BatchTopology) -> PreparedTargets:
        """Convert ops and tensors of the default graph so that a session can run them.

        Args:
          targets: first the tensor that is available at the end of the loop of steps, then
            `Infeed.enqueue`, then the tensors of the outfeed.
        """

    @abstractmethod
    def session_config(self, proto: Any) -> Any:
        """Return the ConfigProto of a session on the TPU system.

        Args:
          proto: the user's ConfigProto or the trainer's default; it is not changed.
        """

    def wrap_session(self, session: Any) -> Any:
        """Wrap a session on the master, so that it can also run TPU computations.

        A session that can run TPU computations without a wrapper is returned unchanged.
        """
        return session

    @abstractmethod
    def initialized_system(
        self, topology: BatchTopology, config: RunConfig
    ) -> AbstractContextManager[None]:
        """Return a context in which the TPU system is initialised."""

    @abstractmethod
    def preemption_hooks(self, config: RunConfig) -> tuple[Any, ...]:
        """Return the SessionRunHooks that handle the loss of the TPU system during a run."""

    @abstractmethod
    def describe(self) -> str:
        """Return a remark about the TPU system for the line that `log_system` logs.

        An empty string means that the line has no remark.
        """

    def device_assignment(self, topology: BatchTopology, config: RunConfig) -> Any:
        """Return the tf.tpu.experimental.DeviceAssignment, which gives each replica its cores.

        Without model parallelism the result is None, which means that replica i has core i.
        """
        return self.assign_cores(topology, config) if topology.is_model_parallel else None

    def log_system(self, topology: BatchTopology) -> None:
        """Log the TPU system of a run, the number of replicas and the batch sizes."""
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
