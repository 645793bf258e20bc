"""What the three modes have in common on a TPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer import infeed
from trainer.backends.tpu import system
from trainer.backends.tpu.replica_program import ReplicaProgram, make_replica_program
from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous
from trainer.distribution.topology import BatchTopology
from trainer.infeed import Infeed
from trainer.model.model_program import TPUModelProgram


@dataclass(frozen=True)
class TpuModeContext:
    """The system that a mode runs on.

    Attributes:
      topology: how batches spread.
      device: the TPU system.
      rendezvous: takes the errors of the threads that feed it.
      batch_axis: see TPUEstimator.
    """

    topology: BatchTopology
    device: system.Device
    rendezvous: ErrorRendezvous
    batch_axis: Any = None

    def fed(
        self, program: TPUModelProgram, input_fn: Callable[..., Any], **how: Any
    ) -> tuple[ReplicaProgram, Infeed]:
        """The program as a replica sees it, and the way its batches come.

        Args:
          program: what runs.
          input_fn: gives the input.
          how: more arguments of `trainer.infeed.build_infeed`.
        """
        config = program.config.tpu_config
        is_emulated = self.device.is_emulated
        cores = system.assignment(self.topology, self.device, program.config)
        replica = make_replica_program(program, self.topology, cores)
        way = infeed.build_infeed(
            replica.input_of(input_fn, self.topology.mode),
            self.topology,
            batch_axis=self.batch_axis,
            parallel_get_next=config.experimental_allow_per_host_v2_parallel_get_next,
            input_partition_dims=config.input_partition_dims,
            device_assignment=None if is_emulated else cores,
            only_first_core_computes=is_emulated,
            **how,
        )
        return replica, way
