"""The TPU system and the settings for building the graph of a mode, such as training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer import infeed
from trainer.backends.tpu.replica_program import ReplicaProgram, make_replica_program
from trainer.backends.tpu.runtime.base import TpuRuntime
from trainer.backends.tpu.transfer import host_inputs
from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous
from trainer.distribution.topology import BatchTopology
from trainer.infeed import Infeed
from trainer.model.model_program import TPUModelProgram


@dataclass(frozen=True)
class TpuModeContext:
    """The TPU system on which a mode, such as training, runs, and the settings of the run."""

    topology: BatchTopology
    runtime: TpuRuntime
    rendezvous: ErrorRendezvous
    batch_axis: Any = None

    def build_infeed(
        self, program: TPUModelProgram, input_fn: Callable[..., Any], **options: Any
    ) -> tuple[ReplicaProgram, Infeed]:
        """Build the ops that feed the batches of a mode, such as training, to the cores.

        Returns:
          (the program, wrapped so that input_fn and model_fn receive params with batch size and
          TPUContext; the infeed).
        """
        config = program.config.tpu_config
        device_assignment = self.runtime.device_assignment(self.topology, program.config)
        replica_program = make_replica_program(program, self.topology, device_assignment)
        replica_infeed = infeed.build_infeed(
            replica_program.pipeline_input(input_fn, self.topology.mode),
            self.topology,
            batch_axis=self.batch_axis,
            parallel_get_next=config.experimental_allow_per_host_v2_parallel_get_next,
            input_partition_dims=config.input_partition_dims,
            device_assignment=self.topology.system.infeed_device_assignment(device_assignment),
            only_first_core_computes=self.runtime.only_first_core_computes,
            has_infeed=self.runtime.has_infeed,
            **options,
        )
        host_inputs.check_same_input(replica_infeed.nest)
        return replica_program, replica_infeed
