"""TPUContext, which describes the TPU system to input_fn and model_fn.

Both functions get it in params['context'].
"""

from collections.abc import Callable
from typing import Any

from tpuserve.errors import InvalidSetting, WrongContext
from trainer.distribution.topology import BatchTopology, Pipeline


class TPUContext:
    """Describes the TPU system to one call of input_fn or model_fn.

    `for_input_fn` and `for_model_fn` create instances. Some properties are available in input_fn
    only or in model_fn only.
    """

    def __init__(
        self, topology: BatchTopology, *, pipeline: Pipeline | None, device_assignment: Any = None
    ) -> None:
        self._topology = topology
        self._pipeline = pipeline
        self._device_assignment = device_assignment

    @classmethod
    def for_input_fn(cls, topology: BatchTopology, pipeline: Pipeline) -> "TPUContext":
        """Return the TPUContext for one call of input_fn.

        Args:
          topology: the distribution of the mode's batches over hosts, replicas and cores.
        """
        return cls(topology, pipeline=pipeline)

    @classmethod
    def for_model_fn(cls, topology: BatchTopology, device_assignment: Any = None) -> "TPUContext":
        """Return the TPUContext for a call of model_fn.

        Args:
          topology: the distribution of the mode's batches over hosts, replicas and cores.
          device_assignment: a tf.tpu.experimental.DeviceAssignment under model parallelism.
        """
        return cls(topology, pipeline=None, device_assignment=device_assignment)

    @property
    def num_replicas(self) -> int:
        """Number of copies of the model."""
        return self._topology.replicas

    @property
    def num_hosts(self) -> int:
        """Number of hosts of the TPU system that take part in the run."""
        return self._topology.hosts

    @property
    def num_of_replicas_per_host(self) -> int:
        """Number of copies of the model on each host.

        Raises:
          InvalidSetting: a replica uses the cores of several hosts.
        """
        return self._topology.replicas_per_host

    @property
    def current_host(self) -> int:
        """Number of the host that this call of input_fn runs on.

        Raises:
          WrongContext: called from model_fn, which runs for all hosts at once.
        """
        return self._input_pipeline("current_host").host

    def current_input_fn_deployment(self) -> tuple[str, int, int, int]:
        """Return the device and number of this call of input_fn, and how many replicas it feeds.

        Returns:
          (device of the call's ops, number of the call from 0, number of calls, number of replicas
          that the call feeds).
        """
        pipeline = self._input_pipeline("current_input_fn_deployment")
        calls = len(self._topology.pipelines)
        return pipeline.device, pipeline.index, calls, len(pipeline.replicas)

    @property
    def device_assignment(self) -> Any:
        """The tf.tpu.experimental.DeviceAssignment; None without model parallelism.

        Raises:
          WrongContext: called from input_fn, which runs before the cores are assigned.
        """
        if self._pipeline is not None:
            raise WrongContext(
                "TPUContext.device_assignment must not be called from input_fn: it describes the "
                "cores of model_fn. Call it from model_fn."
            )
        return self._device_assignment

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        """Return the CPU device of a replica's host, and the device ordinal of the replica's core.

        As in tf.estimator, the name of the device does not contain "/replica:0".

        Raises:
          InvalidSetting: the replica does not exist.
        """
        self._check_in_range("replica", replica_id, self.num_replicas)
        assignment = self._topology.system.infeed_device_assignment(self._device_assignment)
        if assignment is not None:
            # Look the host up in the DeviceAssignment.
            coordinates = assignment.coordinates(replica_id, 0)
            host = int(assignment.topology.task_ordinal_at_coordinates(coordinates))
            ordinal = int(assignment.tpu_ordinal(replica=replica_id))
        else:
            host = self._topology.host_of(replica_id)
            ordinal = self._topology.ordinal_of(replica_id)
        return self._topology.host_device(host).removeprefix("/replica:0"), ordinal

    @property
    def tpu_host_placement_function(self) -> Callable[..., str]:
        """A function that takes host_id or replica_id and names the CPU device of the host."""
        return self._host_placement

    def _host_placement(self, host_id: int | None = None, *, replica_id: int | None = None) -> str:
        if (replica_id is None) == (host_id is None):
            raise InvalidSetting(
                f"tpu_host_placement_function got replica_id={replica_id} and "
                f"host_id={host_id}. Give one of them."
            )
        if replica_id is not None:
            return self.device_for_replica(replica_id)[0]
        assert host_id is not None
        self._check_in_range("host", host_id, self.num_hosts)
        return self._topology.host_device(host_id)

    def _input_pipeline(self, member: str) -> Pipeline:
        if self._pipeline is None:
            raise WrongContext(
                f"TPUContext.{member} must not be called from model_fn: it describes one call of "
                f"input_fn. Call it from input_fn."
            )
        return self._pipeline

    @staticmethod
    def _check_in_range(kind: str, number: int, count: int) -> None:
        if not 0 <= number < count:
            raise InvalidSetting(
                f"There is no {kind} {number}. Give a number from 0 to {count - 1}."
            )
