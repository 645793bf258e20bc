"""What input_fn and model_fn may ask about the TPU system: params['context']."""

from collections.abc import Callable
from typing import Any

from tpuserve.errors import InvalidSetting, WrongContext
from trainer.distribution.topology import BatchTopology, Pipeline


class TPUContext:
    """The TPU system as one call of input_fn, or model_fn, sees it.

    Made by `for_input_fn` and `for_model_fn`; some answers exist in one of them only.
    """

    def __init__(
        self, topology: BatchTopology, *, pipeline: Pipeline | None, device_assignment: Any = None
    ) -> None:
        self._topology = topology
        self._pipeline = pipeline
        self._device_assignment = device_assignment

    @classmethod
    def for_input_fn(cls, topology: BatchTopology, pipeline: Pipeline) -> "TPUContext":
        """The context of one call of input_fn."""
        return cls(topology, pipeline=pipeline)

    @classmethod
    def for_model_fn(cls, topology: BatchTopology, device_assignment: Any = None) -> "TPUContext":
        """The context of model_fn.

        Args:
          topology: that of the mode.
          device_assignment: a tf.tpu.experimental.DeviceAssignment under model parallelism.
        """
        return cls(topology, pipeline=None, device_assignment=device_assignment)

    @property
    def num_replicas(self) -> int:
        """Copies of the model."""
        return self._topology.replicas

    @property
    def num_hosts(self) -> int:
        """Hosts of the system that take part."""
        return self._topology.hosts

    @property
    def num_of_replicas_per_host(self) -> int:
        """Copies of the model on each host.

        Raises:
          InvalidSetting: a replica takes the cores of several hosts.
        """
        return self._topology.replicas_per_host

    @property
    def current_host(self) -> int:
        """The host that this call of input_fn runs on.

        Raises:
          WrongContext: asked in model_fn, which is one for all hosts.
        """
        return self._input_pipeline("current_host").host

    def current_input_fn_deployment(self) -> tuple[str, int, int, int]:
        """Where this call of input_fn stands among all.

        Returns:
          The device its ops are placed on, the number of the call, the number of calls, and
          the number of replicas that it feeds.

        Raises:
          WrongContext: asked in model_fn.
        """
        pipeline = self._input_pipeline("current_input_fn_deployment")
        calls = len(self._topology.pipelines)
        return pipeline.device, pipeline.index, calls, len(pipeline.replicas)

    @property
    def device_assignment(self) -> Any:
        """The tf.tpu.experimental.DeviceAssignment; None without model parallelism.

        Raises:
          WrongContext: asked in input_fn, which runs before the cores are assigned.
        """
        if self._pipeline is not None:
            raise WrongContext(
                "TPUContext.device_assignment must not be called from input_fn: it says where "
                "model_fn's cores are. Ask in model_fn."
            )
        return self._device_assignment

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        """The CPU device of a replica's host, and the ordinal of the replica's core there.

        Raises:
          InvalidSetting: there is no such replica.
        """
        self._check_is_one("replica", replica_id, self.num_replicas)
        if self._device_assignment is not None and not self._topology.system.is_emulated:
            host = self._assigned_host(replica_id)
            ordinal = int(self._device_assignment.tpu_ordinal(replica=replica_id))
            return self._topology.host_device(host), ordinal
        host = self._topology.host_of(replica_id)
        return self._topology.host_device(host), self._topology.ordinal_of(replica_id)

    @property
    def tpu_host_placement_function(self) -> Callable[..., str]:
        """A function of replica_id or host_id that returns the CPU device of that host."""
        return self._host_placement

    def _host_placement(self, *, replica_id: int | None = None, host_id: int | None = None) -> str:
        if (replica_id is None) == (host_id is None):
            raise InvalidSetting(
                f"tpu_host_placement_function got replica_id={replica_id} and "
                f"host_id={host_id}. Give one of them."
            )
        if replica_id is not None:
            return self.device_for_replica(replica_id)[0]
        assert host_id is not None
        self._check_is_one("host", host_id, self.num_hosts)
        return self._topology.host_device(host_id)

    def _assigned_host(self, replica: int) -> int:
        # The assignment may follow the mesh of the cores and not their numbers.
        coordinates = self._device_assignment.coordinates(replica, 0)
        return int(self._device_assignment.topology.task_ordinal_at_coordinates(coordinates))

    def _input_pipeline(self, asked: str) -> Pipeline:
        if self._pipeline is None:
            raise WrongContext(
                f"TPUContext.{asked} must not be called from model_fn: it says which call of "
                f"input_fn asks. Ask in input_fn."
            )
        return self._pipeline

    @staticmethod
    def _check_is_one(kind: str, number: int, of: int) -> None:
        if not 0 <= number < of:
            raise InvalidSetting(f"There is no {kind} {number}. Give a number from 0 to {of - 1}.")
