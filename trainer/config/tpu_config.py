"""TPUConfig: what only a TPU loop has to know, and InputPipelineConfig, the ways of input."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import tf_config as clusters
from trainer.config import validation
from trainer.config.namedtuple_compat import NamedTupleMixin

_CORES_PER_REPLICA = (1, 2, 4, 8, 16, 32, 64, 128)
_LOOP = re.compile(r"(?P<count>[1-9][0-9]*)(?P<unit>[smh]?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class InputPipelineConfig(IntEnum):
    """How input_fn's batches reach the replicas.

    PER_SHARD_V1: input_fn is called for each replica, and returns tensors.
    PER_HOST_V1: it is called for each host; a batch is split among the host's replicas.
    PER_HOST_V2: it is called for each host; each replica takes a batch of its own.
    BROADCAST: it is called once; every replica takes the same batch.
    SLICED: it is called once; a batch is split among all replicas.
    """

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


@dataclass(frozen=True)
class TPUConfig(NamedTupleMixin):
    """What the training loop needs to know.

    Attributes:
      iterations_per_loop: steps that one `session.run` makes, on every device. Hooks,
        checkpoints and summaries come between loops, so this is also the least distance
        between two of them. '30s', '5m' or '1h' asks for as many steps as fit that time.
      num_shards: replicas to train on, which must be those there are; 1 without
        num_cores_per_replica takes one core. A machine without a TPU does not look at it.
      num_cores_per_replica: cores that one copy of the model takes; None for 1.
      per_host_input_for_training: an `InputPipelineConfig`; True is stored as PER_HOST_V1,
        False as PER_SHARD_V1.
      tpu_job_name: job of the TPU workers in the cluster; TF_CONFIG's
        service.tpu_worker_job_name where it is not given; None leaves it to the cluster.
      initial_infeed_sleep_secs: seconds that the first infeed waits.
      input_partition_dims: how features, or features and labels, split over the cores of a
        replica: name → number of pieces by dimension.
      eval_training_input_configuration: InputPipelineConfig.SLICED has evaluate and predict
        call input_fn once and split its batches; PER_HOST_V1 leaves them as training has it.
      experimental_host_call_every_n_steps: steps between two calls of the host call.
      experimental_allow_per_host_v2_parallel_get_next: under PER_HOST_V2, replicas may take
        their batches in any order.
      experimental_feed_hook: what makes the hook that feeds, in place of the usual one: called
        with the arguments of `InfeedOutfeedHook` (trainer.backends.tpu.transfer), whose methods the
        hook must have.
      compile_emulated: XLA compiles the step on an emulated TPU, and refuses what a TPU
        refuses; False runs it uncompiled, which is faster to start.
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
        self._settle_loop()
        validation.check("TPUConfig num_shards", self.num_shards, least=1)
        self._check_cores_per_replica()
        self._settle_input()
        self._settle_job()
        sleep = self.initial_infeed_sleep_secs
        validation.check("TPUConfig initial_infeed_sleep_secs", sleep, least=0)
        self._check_partition()
        every = self.experimental_host_call_every_n_steps
        name = "TPUConfig experimental_host_call_every_n_steps"
        validation.check(name, every, least=1, optional=False)
        hook = self.experimental_feed_hook
        if hook is not None and not callable(hook):
            raise InvalidType(
                f"TPUConfig experimental_feed_hook is {hook!r}. Give what makes a hook, or None."
            )

    @property
    def loop_secs(self) -> int | None:
        """Seconds that one `session.run` is to take; None where a loop is counted in steps."""
        if not isinstance(self.iterations_per_loop, str):
            return None
        count, unit = self.iterations_per_loop[:-1], self.iterations_per_loop[-1]
        return int(count) * _SECONDS[unit]

    def _settle_loop(self) -> None:
        loop = self.iterations_per_loop
        if not isinstance(loop, str):
            name = "TPUConfig iterations_per_loop"
            validation.check(name, loop, least=1, optional=False)
            return
        match = _LOOP.fullmatch(loop)
        if match is None:
            raise InvalidSetting(
                f"TPUConfig iterations_per_loop is {loop!r}. Give a positive whole number of "
                f"steps, or of seconds, minutes or hours: '30s', '5m', '1h'."
            )
        if not match["unit"]:
            object.__setattr__(self, "iterations_per_loop", int(loop))

    def _check_cores_per_replica(self) -> None:
        cores = self.num_cores_per_replica
        validation.check("TPUConfig num_cores_per_replica", cores, least=1)
        if cores is not None and cores not in _CORES_PER_REPLICA:
            allowed = ", ".join(map(str, _CORES_PER_REPLICA))
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {cores}. Give one of {allowed}, or None."
            )

    def _settle_input(self) -> None:
        given = self.per_host_input_for_training
        if isinstance(given, bool):
            given = InputPipelineConfig.PER_HOST_V1 if given else InputPipelineConfig.PER_SHARD_V1
        for name, value, allowed in (
            ("per_host_input_for_training", given, tuple(InputPipelineConfig)),
            (
                "eval_training_input_configuration",
                self.eval_training_input_configuration,
                (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.SLICED),
            ),
        ):
            if isinstance(value, bool) or value not in allowed:
                names = " or ".join(each.name for each in allowed)
                raise InvalidSetting(
                    f"TPUConfig {name} is {value!r}. Give InputPipelineConfig.{names}."
                )
            object.__setattr__(self, name, InputPipelineConfig(value))

    def _settle_job(self) -> None:
        job = self.tpu_job_name
        if job is None:
            service = clusters.read_tf_config(os.environ).get("service") or {}
            job = service.get("tpu_worker_job_name")
            object.__setattr__(self, "tpu_job_name", job)
        if job is not None and not isinstance(job, str):
            raise InvalidType(f"TPUConfig tpu_job_name is {job!r}. Give a job's name, or None.")

    def _check_partition(self) -> None:
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
            found = InputPipelineConfig(self.per_host_input_for_training).name
            raise InvalidSetting(
                f"TPUConfig input_partition_dims is only supported in PER_HOST_V2 mode. "
                f"per_host_input_for_training is {found}: set it to "
                f"InputPipelineConfig.PER_HOST_V2."
            )
