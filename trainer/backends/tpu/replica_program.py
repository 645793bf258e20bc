"""A program as its replicas and its input pipelines see it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer.config import hyperparameters
from trainer.distribution.topology import BatchTopology, Pipeline
from trainer.distribution.tpu_context import TPUContext
from trainer.model.model_program import TPUModelProgram


@dataclass(frozen=True)
class ReplicaProgram(TPUModelProgram):
    """A program whose functions find in params what is theirs of the batch and of the system.

    Attributes:
      topology: how batches spread.
      device_assignment: which cores each replica has; None for one core each.
      pipeline: the input pipeline that input_fn is called for.
    """

    topology: BatchTopology | None = None
    device_assignment: Any = None
    pipeline: Pipeline | None = None

    def model_params(self, mode: str, *, is_export: bool = False, for_tpu: bool = False) -> Any:
        """The hyperparameters with a replica's batch size, and the context of model_fn."""
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
        """The hyperparameters with a pipeline's batch size, and the context of its input_fn."""
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
        """What input_fn returns for one mode, as it is fed."""
        returned = super().call_input_fn(input_fn, mode)
        if self.encode_input is None:
            return returned
        assert self.topology is not None
        return self.encode_input(returned, self.topology.batch_size_for_input_fn, mode)

    def input_of(self, input_fn: Callable[..., Any], mode: str) -> Callable[[Pipeline], Any]:
        """A function that calls input_fn for a pipeline."""

        def call(pipeline: Pipeline) -> Any:
            return dataclasses.replace(self, pipeline=pipeline).call_input_fn(input_fn, mode)

        return call


def make_replica_program(
    program: TPUModelProgram, topology: BatchTopology, device_assignment: Any
) -> ReplicaProgram:
    """The program of a TPU run."""
    fields = {
        each.name: getattr(program, each.name) for each in dataclasses.fields(TPUModelProgram)
    }
    return ReplicaProgram(**fields, topology=topology, device_assignment=device_assignment)
