"""What the three modes have in common on a TPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer import infeed
from trainer.backends.tpu import system
from trainer.backends.tpu.replica_program import ReplicatedProgram, replicated
from trainer.backends.tpu.transfer.error_rendezvous import Rendezvous
from trainer.distribution.topology import Topology
from trainer.infeed import Infeed
from trainer.model.model_program import TPUProgram


@dataclass(frozen=True)
class Setting:
    """The system that a mode runs on.

    Attributes:
      topology: how batches spread.
      device: the TPU system.
      rendezvous: takes the errors of the threads that feed it.
      batch_axis: see TPUEstimator.
    """

    topology: Topology
    device: system.Device
    rendezvous: Rendezvous
    batch_axis: Any = None

    def fed(
        self, program: TPUProgram, input_fn: Callable[..., Any], **how: Any
    ) -> tuple[ReplicatedProgram, Infeed]:
        """The program as a replica sees it, and the way its batches come.

        Args:
          program: what runs.
          input_fn: gives the input.
          how: more arguments of `trainer.infeed.build`.
        """
        config = program.config.tpu_config
        is_emulated = self.device.is_emulated
        cores = system.assignment(self.topology, self.device, program.config)
        replica = replicated(program, self.topology, cores)
        way = infeed.build(
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
