"""Computes how batches are distributed over the hosts, replicas and cores of a TPU system."""

import logging
from dataclasses import dataclass
from typing import Any

from tpuserve import validation
from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig, TPUConfig

logger = logging.getLogger("tensorflow.trainer")

LOCAL_DEVICE = "/replica:0/task:0/device:CPU:0"
# The values of ModeKeys. For messages, VERBS maps each value to the name of the Estimator method
# that runs the mode.
_TRAIN, _EVAL, _PREDICT = "train", "eval", "infer"
VERBS = {_TRAIN: "train", _EVAL: "evaluate", _PREDICT: "predict"}
_WHOLE_BATCH = (InputPipelineConfig.BROADCAST, InputPipelineConfig.SLICED)


@dataclass(frozen=True)
class TpuSlice:
    """The hosts and cores of a TPU system, and the names by which TensorFlow's ops find them.

    This class describes a real TPU; its subclasses describe emulated TPUs and PJRT devices.

    Attributes:
      job: job name of the TPU workers; None if this process is the only worker.
      local_host: number of the host that this process feeds; None if the process feeds all hosts.
    """

    hosts: int
    cores: int
    job: str | None = None
    local_host: int | None = None

    def host_device(self, host: int) -> str:
        """Return the name of a host's CPU device.

        The name contains no job if this process is the only TPU worker.
        """
        if self.job is None:
            return LOCAL_DEVICE
        return f"/job:{self.job}/task:{host}/device:CPU:0"

    def core_ordinal(self, core: int, cores_per_host: int) -> int:
        """Return the device ordinal by which infeed and outfeed ops name a core.

        Args:
          core: number of the core, counted over all hosts that take part in the run.
        """
        return core % cores_per_host

    def infeed_device_assignment(self, device_assignment: Any) -> Any:
        """Return the DeviceAssignment that infeed ops need to find cores.

        Args:
          device_assignment: the tf.tpu.experimental.DeviceAssignment of the run, or None.
        """
        return device_assignment

    def __str__(self) -> str:
        return self._describe("TPU core")

    def _describe(self, core: str) -> str:
        cores = f"{self.cores} {core}{'' if self.cores == 1 else 's'}"
        return f"{cores} on {self.hosts} host{'' if self.hosts == 1 else 's'}"


class EmulatedTpuSlice(TpuSlice):
    """The hosts and cores of an emulated TPU, which all belong to this process.

    All emulated hosts share the queues of this process, which emulate infeed and outfeed.
    Therefore the device ordinal of a core is its number among the cores of all hosts.
    """

    def host_device(self, host: int) -> str:
        """Return the name of the CPU device of this process, which emulates every host."""
        return LOCAL_DEVICE

    def core_ordinal(self, core: int, cores_per_host: int) -> int:
        """Return the core's number among the cores of all hosts; it is the device ordinal here."""
        return core

    def infeed_device_assignment(self, device_assignment: Any) -> None:
        """Return None: infeed ops feed only a replica's first core, and find it by its number."""

    def __str__(self) -> str:
        return self._describe("emulated TPU core")


@dataclass(frozen=True)
class PjrtSlice(TpuSlice):
    """The hosts and devices that jax's PJRT clients offer; each device counts as one core.

    If there are several hosts, each runs a process of its own. Each process receives the results of
    all cores of all hosts.
    """

    platform: str = "tpu"

    def core_ordinal(self, core: int, cores_per_host: int) -> int:
        """Return the core's number among the cores of all hosts; it is the device ordinal here."""
        return core

    def infeed_device_assignment(self, device_assignment: Any) -> None:
        """Return None: a replica has one device, which infeed ops find by its number."""

    def __str__(self) -> str:
        return f"{self._describe('PJRT device')} ({self.platform})"


@dataclass(frozen=True)
class Pipeline:
    """The input pipeline that one call of input_fn builds."""

    index: int
    host: int
    device: str
    replicas: tuple[int, ...]


@dataclass(frozen=True)
class BatchTopology:
    """Describes how batches are distributed over hosts, replicas and cores in one mode.

    The mode is training, evaluation or prediction.

    Call `check()` first: the other methods assume a topology that `check()` accepts.

    Attributes:
      global_batch_size: number of examples that all replicas together process in one step;
        `check()` refuses None.
    """

    system: TpuSlice
    tpu_config: TPUConfig
    mode: str
    global_batch_size: int | None

    @property
    def is_one_core(self) -> bool:
        """Whether num_shards is 1 without num_cores_per_replica, so that the run uses one core."""
        return self.tpu_config.num_shards == 1 and not self.is_model_parallel

    @property
    def is_model_parallel(self) -> bool:
        """Whether num_cores_per_replica is set, even if it is 1."""
        return self.tpu_config.num_cores_per_replica is not None

    @property
    def input_mode(self) -> int:
        """How input_fn is called in this mode, as a constant of `InputPipelineConfig`."""
        if self.mode == _TRAIN:
            return self.tpu_config.per_host_input_for_training
        if self.tpu_config.eval_training_input_configuration == InputPipelineConfig.SLICED:
            return InputPipelineConfig.SLICED
        if self.tpu_config.per_host_input_for_training == InputPipelineConfig.PER_SHARD_V1:
            return InputPipelineConfig.PER_HOST_V1
        return self.tpu_config.per_host_input_for_training

    @property
    def hosts(self) -> int:
        """Number of hosts that take part in the run."""
        return 1 if self.is_one_core else self.system.hosts

    @property
    def cores_per_host(self) -> int:
        """Number of cores of each host that take part in the run."""
        return 1 if self.is_one_core else self.system.cores // self.system.hosts

    @property
    def cores_per_replica(self) -> int:
        """Number of cores of one copy of the model."""
        return self.tpu_config.num_cores_per_replica or 1

    @property
    def replicas(self) -> int:
        """Number of copies of the model."""
        return self.hosts * self.cores_per_host // self.cores_per_replica

    @property
    def replicas_per_host(self) -> int:
        """Number of copies of the model on each host."""
        if self.cores_per_replica > self.cores_per_host:
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {self.cores_per_replica} and a host has "
                f"{self.cores_per_host} cores, so one replica takes several hosts and no host "
                f"has replicas of its own. Use the number of replicas: {self.replicas}."
            )
        return self.cores_per_host // self.cores_per_replica

    @property
    def batch_size_for_input_fn(self) -> int:
        """Number of examples in one batch of input_fn: the value of its params['batch_size']."""
        if self.input_mode == InputPipelineConfig.PER_HOST_V1:
            return self._batch_size // self.hosts
        if self.input_mode in _WHOLE_BATCH:
            return self._batch_size
        return self._batch_size // self.replicas

    @property
    def batch_size_for_model_fn(self) -> int:
        """Number of examples in a replica's batch: the value of model_fn's params['batch_size']."""
        if self.input_mode == InputPipelineConfig.BROADCAST:
            return self._batch_size
        return self._batch_size // self.replicas

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The input pipelines, in the order of the calls of input_fn."""
        all_replicas = tuple(range(self.replicas))
        if self.input_mode in _WHOLE_BATCH:
            groups = [all_replicas]
        elif self.input_mode == InputPipelineConfig.PER_SHARD_V1:
            groups = [(replica,) for replica in all_replicas]
        else:
            # If a replica has cores on several hosts, the host of its first core feeds all of its
            # cores. A host without any replica's first core therefore gets no pipeline.
            hosts = sorted({self.host_of(replica) for replica in all_replicas})
            groups = [tuple(r for r in all_replicas if self.host_of(r) == host) for host in hosts]
        return tuple(
            Pipeline(
                index,
                self.host_of(replicas[0]),
                self.host_device(self.host_of(replicas[0])),
                replicas,
            )
            for index, replicas in enumerate(groups)
        )

    @property
    def local_pipelines(self) -> tuple[Pipeline, ...]:
        """The input pipelines that this process runs."""
        host = self.system.local_host
        return tuple(
            pipeline for pipeline in self.pipelines if host is None or pipeline.host == host
        )

    @property
    def local_replicas(self) -> tuple[int, ...]:
        """Numbers of the replicas that this process feeds, in order."""
        return tuple(replica for pipeline in self.local_pipelines for replica in pipeline.replicas)

    def host_device(self, host: int) -> str:
        """Return the name of a host's CPU device."""
        return self.system.host_device(host)

    def host_of(self, replica: int) -> int:
        """Return the number of the host that a replica's first core is attached to."""
        return replica * self.cores_per_replica // self.cores_per_host

    def ordinal_of(self, replica: int, logical_core: int = 0) -> int:
        """Return the device ordinal by which infeed and outfeed ops name a replica's core."""
        core = replica * self.cores_per_replica + logical_core
        return self.system.core_ordinal(core, self.cores_per_host)

    def check(self) -> None:
        """Check that the user's settings suit the TPU system.

        Raises:
          InvalidSetting: the system has no cores; num_shards or num_cores_per_replica do not
            match the system; the batch size is missing or not divisible by the number of
            replicas; or the mode does not run on several hosts with this input mode.
        """
        self._check_cores()
        self._check_shards()
        self._check_batch_size()
        self._check_processes()
        self._check_hosts()
        if self.is_one_core and self.system.cores > 1:
            logger.warning(
                "TPUConfig num_shards is 1: only one of %s is used, and errors that need several "
                "cores go unnoticed. Leave num_shards out to use all cores.",
                self.system,
            )

    @property
    def _batch_size(self) -> int:
        if self.global_batch_size is None:
            raise InvalidSetting(
                f"{self._size_name} is None, and {VERBS[self.mode]} on a TPU needs it. Pass "
                f"TPUEstimator the number of rows that all replicas together process in a step."
            )
        return self.global_batch_size

    @property
    def _size_name(self) -> str:
        names = {_TRAIN: "train_batch_size", _EVAL: "eval_batch_size"}
        return names.get(self.mode, "predict_batch_size")

    def _check_cores(self) -> None:
        system, cores = self.system, self.cores_per_replica
        if system.cores < 1 or system.hosts < 1:
            raise InvalidSetting(
                "Cannot find any TPU cores in the system: the master has none. Check the "
                "master's address, emulate a TPU with TPUSERVE_EMULATED_TPU=8, or give "
                "use_tpu=False."
            )
        if cores > system.cores:
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {cores}, and the system has {system}. "
                f"Give at most {system.cores}."
            )
        if cores > self.cores_per_host and self.input_mode != InputPipelineConfig.PER_HOST_V2:
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {cores}, and a host has "
                f"{self.cores_per_host} cores. A replica takes several hosts only with "
                f"per_host_input_for_training=InputPipelineConfig.PER_HOST_V2."
            )
        if max(cores, self.cores_per_host) % min(cores, self.cores_per_host) or (
            self.hosts * self.cores_per_host % cores
        ):
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {cores}, and {system} cannot be divided "
                f"evenly into replicas of {cores} cores. Give a divisor of the number of cores."
            )

    def _check_shards(self) -> None:
        shards = self.tpu_config.num_shards
        if shards is not None and shards != self.replicas:
            raise InvalidSetting(
                f"TPUConfig.num_shards is not set correctly: it is {shards}, and {self.system} "
                f"with {self.cores_per_replica} to a replica make {self.replicas} "
                f"{'replica' if self.replicas == 1 else 'replicas'}. Set it to {self.replicas}, "
                f"or leave it out."
            )

    def _check_batch_size(self) -> None:
        size = self._batch_size
        validation.check_integer(self._size_name, size, least=1)
        if self.input_mode not in _WHOLE_BATCH and size % self.replicas:
            below = size - size % self.replicas
            multiples = [str(size) for size in (below, below + self.replicas) if size]
            raise InvalidSetting(
                f"{self._size_name} ({size}) must be divisible by the number of replicas "
                f"({self.replicas}). Use a multiple of {self.replicas}, for example "
                f"{' or '.join(multiples)}."
            )

    def _check_processes(self) -> None:
        """Check the settings of a run in which each host has a process of its own."""
        if self.system.local_host is None:
            return
        if self.mode == _PREDICT:
            raise InvalidSetting(
                f"predict cannot run on {self.system}, each host with a process of its own. "
                f"Predict in one process, from the same model_dir."
            )
        if self.is_one_core:
            raise InvalidSetting(
                f"TPUConfig num_shards is 1, and the program runs on {self.system}, each host with "
                f"a process of its own. Leave num_shards out, or run the program on one host."
            )
        takes_own_batches = self.input_mode == InputPipelineConfig.PER_HOST_V2
        if self.input_mode in _WHOLE_BATCH or (self.mode == _EVAL and not takes_own_batches):
            raise InvalidSetting(
                f"{VERBS[self.mode]} cannot run in the input mode "
                f"{InputPipelineConfig(self.input_mode).name} on {self.system}, each host with a "
                f"process that feeds its own cores. Use "
                f"per_host_input_for_training=InputPipelineConfig.PER_HOST_V2."
            )

    def _check_hosts(self) -> None:
        if self.hosts == 1 or self.mode == _TRAIN or self.input_mode in _WHOLE_BATCH:
            return
        has_pipeline_per_host = self.input_mode == InputPipelineConfig.PER_HOST_V2
        if has_pipeline_per_host and (self.mode == _EVAL or self.replicas == 1):
            return
        required = "PER_HOST_V2" + (
            " with one replica of all cores" if self.mode == _PREDICT else ""
        )
        raise InvalidSetting(
            f"{VERBS[self.mode]} cannot run on {self.system} with this input mode. On several "
            f"hosts use InputPipelineConfig.{required}, or BROADCAST, or "
            f"eval_training_input_configuration=InputPipelineConfig.SLICED."
        )
