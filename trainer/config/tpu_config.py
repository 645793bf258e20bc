"""TPUConfig and InputPipelineConfig: the settings of the training loop and of its input."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum
from typing import Any

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import tf_config as clusters
from trainer.config.namedtuple_compat import NamedTupleMixin

_CORES_PER_REPLICA = (1, 2, 4, 8, 16, 32, 64, 128)
_LOOP_LENGTH = re.compile(r"(?P<count>[1-9][0-9]*)(?P<unit>[smh]?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class InputPipelineConfig(IntEnum):
    """Decides how often input_fn is called and how its batches reach the replicas.

    Attributes:
      PER_HOST_V1: input_fn is called for each host; each batch is split among the replicas of
        the host.
      PER_HOST_V2: input_fn is called for each host; each replica takes its own batch.
      BROADCAST: input_fn is called once; every replica receives the same batch.
      SLICED: input_fn is called once; each batch is split among all replicas.
    """

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


@dataclass(frozen=True)
class TPUConfig(NamedTupleMixin):
    """The settings of the training loop and of its input.

    Attributes:
      iterations_per_loop: the number of steps of one loop, which is one `session.run`.
      num_shards: the number of replicas to train on, which must be the number that the TPU offers;
        None takes all. As an exception, 1 trains on a single core if num_cores_per_replica is None.
      num_cores_per_replica: the number of cores of one copy of the model: a power of two up to
        128; None for 1.
      per_host_input_for_training: an `InputPipelineConfig`. True is stored as PER_HOST_V1, False
        as PER_SHARD_V1.
      tpu_job_name: the job name of the TPU workers in the cluster. None takes
        service.tpu_worker_job_name of TF_CONFIG or, if that is missing, infers the name.
      initial_infeed_sleep_secs: the time that the infeed waits before its first batch, in
        seconds.
      input_partition_dims: how features, or features and labels, are split over the cores of a
        replica: tensor name → number of parts per dimension.
      eval_training_input_configuration: InputPipelineConfig.SLICED makes evaluate and predict
        call input_fn once and split its batches; PER_HOST_V1 uses the configuration of training.
      experimental_host_call_every_n_steps: the number of steps between two runs of the host_call.
      experimental_allow_per_host_v2_parallel_get_next: whether the replicas are allowed to take
        batches in any order under PER_HOST_V2.
      experimental_feed_hook: a function that returns the hook that feeds the TPU.
      compile_emulated: whether XLA compiles the step on an emulated TPU, and so refuses the ops
        that a TPU refuses. False runs the step uncompiled, which starts faster.

    Raises:
      InvalidSetting: an attribute is out of range or contradicts another attribute.
      InvalidType: an attribute has a wrong type.
    """

    iterations_per_loop: int | str = 2
    num_shards: int | None = None
    num_cores_per_replica: int | None = None
    per_host_input_for_training: int = True
    tpu_job_name: str | None = None
    initial_infeed_sleep_secs: int | None = None
    input_partition_dims: Sequence[Any] | None = None
    eval_training_input_configuration: int = InputPipelineConfig.PER_HOST_V1
    experimental_host_call_every_n_steps: int = 1
    experimental_allow_per_host_v2_parallel_get_next: bool = False
    experimental_feed_hook: Callable[..., Any] | None = None
    _: KW_ONLY
    compile_emulated: bool = True

    def __post_init__(self) -> None:
        self._parse_loop_length()
        validation.check_integer("TPUConfig num_shards", self.num_shards, least=1, optional=True)
        self._check_cores_per_replica()
        self._normalize_input_configuration()
        self._resolve_job_name()
        sleep = self.initial_infeed_sleep_secs
        validation.check_integer(
            "TPUConfig initial_infeed_sleep_secs", sleep, least=0, optional=True
        )
        self._check_partition_dims()
        every = self.experimental_host_call_every_n_steps
        name = "TPUConfig experimental_host_call_every_n_steps"
        validation.check_integer(name, every, least=1)
        hook = self.experimental_feed_hook
        if hook is not None and not callable(hook):
            raise InvalidType(
                f"TPUConfig experimental_feed_hook is {hook!r}. Give a function that makes a hook, "
                f"or None."
            )

    @property
    def loop_secs(self) -> int | None:
        """The target duration of one loop, in seconds; None if the number of steps is fixed."""
        if not isinstance(self.iterations_per_loop, str):
            return None
        count, unit = self.iterations_per_loop[:-1], self.iterations_per_loop[-1]
        return int(count) * _SECONDS[unit]

    def _parse_loop_length(self) -> None:
        """Validate iterations_per_loop, and convert a number in a string to an int."""
        loop = self.iterations_per_loop
        if not isinstance(loop, str):
            name = "TPUConfig iterations_per_loop"
            validation.check_integer(name, loop, least=1)
            return
        match = _LOOP_LENGTH.fullmatch(loop)
        if match is None:
            raise InvalidSetting(
                f"TPUConfig iterations_per_loop is {loop!r}. Give a positive whole number of "
                f"steps, or of seconds, minutes or hours: '30s', '5m', '1h'."
            )
        if not match["unit"]:
            object.__setattr__(self, "iterations_per_loop", int(loop))

    def _check_cores_per_replica(self) -> None:
        cores = self.num_cores_per_replica
        validation.check_integer("TPUConfig num_cores_per_replica", cores, least=1, optional=True)
        if cores is not None and cores not in _CORES_PER_REPLICA:
            allowed = ", ".join(map(str, _CORES_PER_REPLICA))
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {cores}. Give one of {allowed}, or None."
            )

    def _normalize_input_configuration(self) -> None:
        """Convert the input settings of training and evaluation to InputPipelineConfig members."""
        training = self.per_host_input_for_training
        if isinstance(training, bool):
            training = (
                InputPipelineConfig.PER_HOST_V1 if training else InputPipelineConfig.PER_SHARD_V1
            )
        for name, value, allowed in (
            ("per_host_input_for_training", training, tuple(InputPipelineConfig)),
            (
                "eval_training_input_configuration",
                self.eval_training_input_configuration,
                (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.SLICED),
            ),
        ):
            if isinstance(value, bool) or value not in allowed:
                names = " or ".join(option.name for option in allowed)
                raise InvalidSetting(
                    f"TPUConfig {name} is {value!r}. Give InputPipelineConfig.{names}."
                )
            object.__setattr__(self, name, InputPipelineConfig(value))

    def _resolve_job_name(self) -> None:
        """Set tpu_job_name to service.tpu_worker_job_name of TF_CONFIG if the argument is None."""
        job = self.tpu_job_name
        if job is None:
            service = clusters.read_tf_config(os.environ).get("service") or {}
            job = service.get("tpu_worker_job_name")
            object.__setattr__(self, "tpu_job_name", job)
        if job is not None and not isinstance(job, str):
            raise InvalidType(f"TPUConfig tpu_job_name is {job!r}. Give a job's name, or None.")

    def _check_partition_dims(self) -> None:
        dims = self.input_partition_dims
        if dims is None:
            return
        if not isinstance(dims, list | tuple) or len(dims) not in (1, 2):
            raise InvalidSetting(
                f"TPUConfig input_partition_dims is {dims!r}. Give a list/tuple with one or two "
                f"elements: the features' and the labels'."
            )
        if self.num_cores_per_replica is None:
            raise InvalidSetting(
                "TPUConfig input_partition_dims requires setting num_cores_per_replica: the "
                "cores of one replica share the input. It is None."
            )
        if self.per_host_input_for_training != InputPipelineConfig.PER_HOST_V2:
            configuration = InputPipelineConfig(self.per_host_input_for_training).name
            raise InvalidSetting(
                f"TPUConfig input_partition_dims is only supported in PER_HOST_V2 mode. "
                f"per_host_input_for_training is {configuration}: set it to "
                f"InputPipelineConfig.PER_HOST_V2."
            )
