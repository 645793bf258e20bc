"""How a mode's batches spread over the hosts, replicas and cores of a TPU system: numbers only."""

import logging
from dataclasses import dataclass

from tpuserve import validation
from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig, TPUConfig

logger = logging.getLogger("tensorflow.trainer")

_LOCAL_DEVICE = "/replica:0/task:0/device:CPU:0"
# The values of ModeKeys, and how each is called where users name it.
_TRAIN, _EVAL, _PREDICT = "train", "eval", "infer"
VERBS = {_TRAIN: "train", _EVAL: "evaluate", _PREDICT: "predict"}
_WHOLE_BATCH = (InputPipelineConfig.BROADCAST, InputPipelineConfig.SLICED)


@dataclass(frozen=True)
class TpuSlice:
    """The TPU system of a run.

    Attributes:
      hosts: machines that the cores are attached to.
      cores: TPU cores of all hosts together.
      is_emulated: the cores are this machine's CPU, and its hosts this very process.
      job: job name of the TPU workers; None where they are this very process.
    """

    hosts: int
    cores: int
    is_emulated: bool = False
    job: str | None = None

    def __str__(self) -> str:
        cores = f"{self.cores} {'emulated ' if self.is_emulated else ''}TPU core"
        cores += "" if self.cores == 1 else "s"
        return f"{cores} on {self.hosts} host{'' if self.hosts == 1 else 's'}"


@dataclass(frozen=True)
class Pipeline:
    """One call of input_fn.

    Attributes:
      index: number of the call.
      host: the host it runs on.
      device: the device that its ops are placed on.
      replicas: the replicas it feeds, in order.
    """

    index: int
    host: int
    device: str
    replicas: tuple[int, ...]


@dataclass(frozen=True)
class BatchTopology:
    """How one mode's batches spread over hosts, replicas and cores.

    Ask `check()` first: the other answers hold for what it lets through.

    Attributes:
      system: the TPU system that was found.
      tpu_config: what the user set.
      mode: 'train', 'eval' or 'infer'.
      global_batch_size: rows of one step over all replicas; None is refused by `check`.
    """

    system: TpuSlice
    tpu_config: TPUConfig
    mode: str
    global_batch_size: int | None

    @property
    def is_one_core(self) -> bool:
        """Whether the run takes one core and leaves the others alone: num_shards is 1."""
        return self.tpu_config.num_shards == 1 and not self.is_model_parallel

    @property
    def is_model_parallel(self) -> bool:
        """Whether the number of cores a replica takes was set; it may have been set to 1."""
        return self.tpu_config.num_cores_per_replica is not None

    @property
    def input_mode(self) -> int:
        """The constant of `InputPipelineConfig` in effect in this mode."""
        if self.mode == _TRAIN:
            return self.tpu_config.per_host_input_for_training
        if self.tpu_config.eval_training_input_configuration == InputPipelineConfig.SLICED:
            return InputPipelineConfig.SLICED
        if self.tpu_config.per_host_input_for_training == InputPipelineConfig.PER_SHARD_V1:
            return InputPipelineConfig.PER_HOST_V1
        return self.tpu_config.per_host_input_for_training

    @property
    def hosts(self) -> int:
        """Hosts that take part; those of one replica count each."""
        return 1 if self.is_one_core else self.system.hosts

    @property
    def cores_per_host(self) -> int:
        """Cores of each host that take part."""
        return 1 if self.is_one_core else self.system.cores // self.system.hosts

    @property
    def cores_per_replica(self) -> int:
        """Cores that one copy of the model takes."""
        return self.tpu_config.num_cores_per_replica or 1

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.hosts * self.cores_per_host // self.cores_per_replica

    @property
    def replicas_per_host(self) -> int:
        """Copies of the model on each host.

        Raises:
          InvalidSetting: a replica takes the cores of several hosts.
        """
        if self.cores_per_replica > self.cores_per_host:
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {self.cores_per_replica} and a host has "
                f"{self.cores_per_host} cores, so one replica takes several hosts and no host "
                f"has replicas of its own. Ask for the number of replicas: {self.replicas}."
            )
        return self.cores_per_host // self.cores_per_replica

    @property
    def batch_size_for_input_fn(self) -> int:
        """Rows that one batch of input_fn's dataset has: its params['batch_size']."""
        if self.input_mode == InputPipelineConfig.PER_HOST_V1:
            return self._batch_size // (self.hosts if self.mode == _TRAIN else 1)
        if self.input_mode in _WHOLE_BATCH:
            return self._batch_size
        return self._batch_size // self.replicas

    @property
    def batch_size_for_model_fn(self) -> int:
        """Rows that model_fn meets on each replica: its params['batch_size']."""
        if self.input_mode == InputPipelineConfig.BROADCAST:
            return self._batch_size
        return self._batch_size // self.replicas

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The calls of input_fn, in order."""
        every = tuple(range(self.replicas))
        if self.input_mode in _WHOLE_BATCH:
            fed = [every]
        elif self.input_mode == InputPipelineConfig.PER_SHARD_V1:
            fed = [(replica,) for replica in every]
        else:
            # A host that has no replica's first core is left out: its cores are fed from the
            # host that has.
            hosts = sorted({self.host_of(replica) for replica in every})
            fed = [tuple(r for r in every if self.host_of(r) == host) for host in hosts]
        return tuple(
            Pipeline(
                index,
                self.host_of(replicas[0]),
                self.host_device(self.host_of(replicas[0])),
                replicas,
            )
            for index, replicas in enumerate(fed)
        )

    def host_device(self, host: int) -> str:
        """The CPU device of a host; this process's own where the host lives in it."""
        if self.system.is_emulated or self.system.job is None:
            return _LOCAL_DEVICE
        return f"/job:{self.system.job}/task:{host}/device:CPU:0"

    def host_of(self, replica: int) -> int:
        """The host that a replica's first core is attached to."""
        return replica * self.cores_per_replica // self.cores_per_host

    def ordinal_of(self, replica: int, logical_core: int = 0) -> int:
        """The number that infeed and outfeed know a replica's core by.

        On a real system it counts the cores of a host. The hosts of an emulated one share a
        process, and with it the queues: there it counts the cores of the whole system.
        """
        core = replica * self.cores_per_replica + logical_core
        return core if self.system.is_emulated else core % self.cores_per_host

    def check(self) -> None:
        """Refuses what cannot run.

        Raises:
          InvalidSetting: the system has no cores; num_shards or num_cores_per_replica do not
            fit it; the batch size is missing or does not divide by the replicas; the mode does
            not run on several hosts with this way of input.
        """
        self._check_cores()
        self._check_shards()
        self._check_batch_size()
        self._check_hosts()
        if self.is_one_core and self.system.cores > 1:
            logger.warning(
                "TPUConfig num_shards is 1: one of %s is used, and what the others would find "
                "wrong goes unnoticed. Leave num_shards out to use all.",
                self.system,
            )

    @property
    def _batch_size(self) -> int:
        if self.global_batch_size is None:
            raise InvalidSetting(
                f"{self._size_name} is None, and {VERBS[self.mode]} on a TPU needs it. Give "
                f"TPUEstimator the number of rows that all replicas together take a step."
            )
        return self.global_batch_size

    @property
    def _size_name(self) -> str:
        names = {_TRAIN: "train_batch_size", _EVAL: "eval_batch_size"}
        return names.get(self.mode, "predict_batch_size")

    def _check_cores(self) -> None:
        system, wanted = self.system, self.cores_per_replica
        if system.cores < 1 or system.hosts < 1:
            raise InvalidSetting(
                "Cannot find any TPU cores in the system: the master has none. Check the "
                "master's address, emulate a TPU with TPUSERVE_EMULATED_TPU=8, or give "
                "use_tpu=False."
            )
        if wanted > system.cores:
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {wanted}, and the system has {system}. "
                f"Give at most {system.cores}."
            )
        if wanted > self.cores_per_host and self.input_mode != InputPipelineConfig.PER_HOST_V2:
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {wanted}, and a host has "
                f"{self.cores_per_host} cores. A replica takes several hosts only with "
                f"per_host_input_for_training=InputPipelineConfig.PER_HOST_V2."
            )
        if max(wanted, self.cores_per_host) % min(wanted, self.cores_per_host) or (
            self.hosts * self.cores_per_host % wanted
        ):
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {wanted}, which does not divide {system} "
                f"evenly. Give a number that does."
            )

    def _check_shards(self) -> None:
        shards = self.tpu_config.num_shards
        if shards is not None and shards != self.replicas:
            raise InvalidSetting(
                f"TPUConfig.num_shards is not set correctly: it is {shards}, and {self.system} "
                f"with {self.cores_per_replica} to a replica make {self.replicas} replicas. "
                f"Set it to {self.replicas}, or leave it out."
            )

    def _check_batch_size(self) -> None:
        size = self._batch_size
        validation.check_integer(self._size_name, size, least=1)
        if self.input_mode not in _WHOLE_BATCH and size % self.replicas:
            below = size - size % self.replicas
            fits = [str(each) for each in (below, below + self.replicas) if each]
            raise InvalidSetting(
                f"{self._size_name} is {size}, which does not divide by the number of replicas, "
                f"{self.replicas}. Give a multiple of it, such as {' or '.join(fits)}."
            )

    def _check_hosts(self) -> None:
        if self.hosts == 1 or self.mode == _TRAIN or self.input_mode in _WHOLE_BATCH:
            return
        is_fed_apart = self.input_mode == InputPipelineConfig.PER_HOST_V2
        if is_fed_apart and (self.mode == _EVAL or self.replicas == 1):
            return
        need = "PER_HOST_V2" + (" with one replica of all cores" if self.mode == _PREDICT else "")
        raise InvalidSetting(
            f"{VERBS[self.mode]} asked for on {self.system}, which the way of input does not "
            f"allow. On several hosts it takes InputPipelineConfig.{need}, or BROADCAST, or "
            f"eval_training_input_configuration=InputPipelineConfig.SLICED."
        )
