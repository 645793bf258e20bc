"""The TPU system and the settings for building the graph of a mode, such as training."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from trainer import infeed
from trainer.backends.tpu.runtime import TpuRuntime
from trainer.backends.tpu.transfer import outfeed
from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous
from trainer.config import hyperparameters
from trainer.distribution.topology import BatchTopology, Pipeline
from trainer.distribution.tpu_context import TPUContext
from trainer.infeed import Infeed
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import AnySpec


@dataclass(frozen=True)
class ReplicaProgram(TPUModelProgram):
    """The user's model_fn and settings, with batch size and TPUContext added to the params.

    Attributes:
      pipeline: the input pipeline for which `call_input_fn` calls input_fn.
    """

    topology: BatchTopology | None = None
    device_assignment: Any = None
    pipeline: Pipeline | None = None

    def model_params(self, mode: str, *, is_export: bool = False, for_tpu: bool = False) -> Any:
        """Return the `params` of model_fn, with use_tpu, a replica's batch size and a TPUContext.

        The arguments are those of `ModelProgram.model_params`. They have no effect here.
        """
        assert self.topology is not None
        return hyperparameters.with_hyperparameters(
            self.params,
            {
                "use_tpu": True,
                "batch_size": self.topology.batch_size_for_model_fn,
                "context": TPUContext.for_model_fn(self.topology, self.device_assignment),
            },
        )

    def input_params(self, mode: str) -> Any:
        """Return the `params` of input_fn, with the pipeline's batch size and a TPUContext."""
        assert self.topology is not None
        assert self.pipeline is not None
        return hyperparameters.with_hyperparameters(
            self.params,
            {
                "batch_size": self.topology.batch_size_for_input_fn,
                "context": TPUContext.for_input_fn(self.topology, self.pipeline),
            },
        )

    def call_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        """Call an input_fn; return its Dataset or tensors.

        The program's `encode_input` function, if there is one, converts the result to an input that
        can be fed to a TPU.
        """
        returned = super().call_input_fn(input_fn, mode)
        if self.encode_input is None:
            return returned
        assert self.topology is not None
        return self.encode_input(returned, self.topology.batch_size_for_input_fn, mode)

    def pipeline_input(self, input_fn: Callable[..., Any], mode: str) -> Callable[[Pipeline], Any]:
        """Return a function that takes an input pipeline and calls input_fn for this pipeline."""

        def call(pipeline: Pipeline) -> Any:
            return dataclasses.replace(self, pipeline=pipeline).call_input_fn(input_fn, mode)

        return call


def make_replica_program(
    program: TPUModelProgram, topology: BatchTopology, device_assignment: Any
) -> ReplicaProgram:
    """Wrap the user's program for the replicas of a TPU run."""
    fields = {
        field.name: getattr(program, field.name) for field in dataclasses.fields(TPUModelProgram)
    }
    return ReplicaProgram(**fields, topology=topology, device_assignment=device_assignment)


class StepProgram(Protocol):
    """The user's model_fn and input_fn, as the step of one replica calls them."""

    @property
    def device_assignment(self) -> Any:
        """The tf.tpu.experimental.DeviceAssignment, or None."""

    def call_model_fn(self, features: Any, labels: Any, mode: str) -> AnySpec:
        """Call model_fn inside the step of a replica."""

    def pipeline_input(self, input_fn: Callable[..., Any], mode: str) -> Callable[[Pipeline], Any]:
        """Return a function that takes an input pipeline and calls input_fn for this pipeline."""


@dataclass(frozen=True)
class TpuModeContext:
    """The TPU system on which a mode, such as training, runs, and the settings of the run.

    Attributes:
      make_program: takes the user's program, the topology and the DeviceAssignment or None; returns
        the program of one replica.
    """

    topology: BatchTopology
    runtime: TpuRuntime
    rendezvous: ErrorRendezvous
    batch_axis: Any = None
    make_program: Callable[[Any, BatchTopology, Any], StepProgram] = make_replica_program

    def build_infeed(
        self, program: TPUModelProgram, input_fn: Callable[..., Any], **options: Any
    ) -> tuple[StepProgram, Infeed]:
        """Build the ops that feed the batches of a mode, such as training, to the cores.

        Returns:
          (the program, wrapped so that input_fn and model_fn receive params with batch size and
          TPUContext; the infeed).
        """
        config = program.config.tpu_config
        device_assignment = self.runtime.device_assignment(self.topology, program.config)
        replica_program = self.make_program(program, self.topology, device_assignment)
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
        outfeed.check_same_input(replica_infeed.nest)
        return replica_program, replica_infeed
