"""How a run is set up: RunConfig for any device, TPUConfig for what only a TPU loop has.

Names and defaults are those of tf.estimator's classes of the same names.
"""

import copy
import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import tf_config as clusters
from trainer.config import validation
from trainer.config.tpu_config import InputPipelineConfig, TPUConfig

__all__ = ["InputPipelineConfig", "RunConfig", "TPUConfig"]

DEFAULT_SAVE_CHECKPOINTS_SECS = 600

_PROTOCOLS = (None, "grpc", "grpc+verbs")


class _Unset:
    """Tells "not given" from None, which switches checkpoints off."""

    def __repr__(self) -> str:
        return "unset"

    def __deepcopy__(self, memo: Any) -> "_Unset":
        return self


_UNSET: Any = _Unset()
_NOT_GIVEN: Any = None


@dataclass(frozen=True)
class RunConfig:
    """Where a run writes, how often, with which session, and on which cluster.

    TF_CONFIG is read when it is made.

    Attributes:
      tpu_config: see `TPUConfig`. A path in its place is taken as model_dir, which comes first
        in tf.estimator.RunConfig.
      evaluation_master: session target for evaluation; that for training where it is not
        given, except for an evaluator. Never None once made; '' is this process.
      master: session target for training; TF_CONFIG's or the cluster's where it is not given.
        Never None once made.
      cluster: a tf.distribute.cluster_resolver.ClusterResolver, in place of master.
      model_dir: where checkpoints and summaries go; TF_CONFIG's where it is not given; None
        leaves it to the estimator.
      tf_random_seed: makes initial values and dropout repeatable.
      save_summary_steps: steps between two TensorBoard summaries; 0 or None for none.
      save_checkpoints_steps, save_checkpoints_secs: distance between two checkpoints, in steps
        or in seconds; 600 seconds when neither is given, no checkpoints when both are None.
      session_config: a tf.compat.v1.ConfigProto; None for soft placement and defaults.
      keep_checkpoint_max: how many recent checkpoints are kept; 0 or None keeps all.
      keep_checkpoint_every_n_hours: one checkpoint per so many hours is kept for good.
      log_step_count_steps: steps between two lines that say the loss and the speed.
      train_distribute, eval_distribute, experimental_distribute: None; distribution
        strategies are refused.
      device_fn: operation, named op → device of the variables and ops of a model off the TPU.
      protocol: None, 'grpc' or 'grpc+verbs'.
      experimental_max_worker_delay_secs: the longest that a worker waits before it starts.
      session_creation_timeout_secs: the longest that a session waits to be created.
      checkpoint_save_graph_def: whether the graph is written with each checkpoint.
      profile_steps: (first, last) global steps, both captured, for TensorBoard's profiler.
      task: what TF_CONFIG says of this process.
      has_tpu_config: whether a TPUConfig was given.
    """

    tpu_config: TPUConfig = _NOT_GIVEN
    evaluation_master: str | None = None
    master: str | None = None
    cluster: Any = None
    _: KW_ONLY
    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _UNSET
    save_checkpoints_secs: float | None = _UNSET
    session_config: Any = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10_000
    log_step_count_steps: int | None = 100
    train_distribute: Any = None
    device_fn: Callable[[Any], Any] | None = None
    protocol: str | None = None
    eval_distribute: Any = None
    experimental_distribute: Any = None
    experimental_max_worker_delay_secs: int | None = None
    session_creation_timeout_secs: float = 7200
    checkpoint_save_graph_def: bool = True
    profile_steps: tuple[int, int] | None = None
    task: clusters.ClusterTask = field(init=False, repr=False)
    has_tpu_config: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._settle_first_argument()
        self._set("task", clusters.read_cluster_task(os.environ))
        self._settle_model_dir()
        self._settle_checkpoints()
        self._settle_masters()
        self._check()

    @property
    def task_type(self) -> str:
        """'worker' where there is no cluster."""
        return self.task.task_type

    @property
    def task_id(self) -> int:
        """Number of this task within its type."""
        return self.task.task_id

    @property
    def is_chief(self) -> bool:
        """Whether this process saves checkpoints and summaries."""
        return self.task.is_chief

    @property
    def num_worker_replicas(self) -> int:
        """Tasks that train, the chief included."""
        return self.task.num_worker_replicas

    @property
    def num_ps_replicas(self) -> int:
        """Parameter servers of the cluster."""
        return self.task.num_ps_replicas

    @property
    def global_id_in_cluster(self) -> int | None:
        """Number of this task among all tasks; None for an evaluator."""
        return self.task.global_id_in_cluster

    @property
    def service(self) -> Mapping[str, Any] | None:
        """What TF_CONFIG says of the platform."""
        return self.task.service

    @property
    def cluster_spec(self) -> Any:
        """A tf.train.ClusterSpec: the resolver's, else TF_CONFIG's, else an empty one."""
        # Imported here so that those who only configure a run do not pay for TensorFlow.
        import tensorflow as tf

        if self.cluster is not None:
            return self.cluster.cluster_spec()
        return tf.train.ClusterSpec({job: dict(tasks) for job, tasks in self.task.jobs.items()})

    def tpu_job(self, mode: str) -> str | None:
        """Job name of the TPU workers in a mode; None where they are this very process.

        Args:
          mode: one of `ModeKeys`; 'eval' looks at evaluation_master, the others at master.

        Raises:
          InvalidSetting: the session's cluster has several jobs, and none is named as theirs.
        """
        master = self.evaluation_master if mode == "eval" else self.master
        jobs: list[str] = []
        if self.session_config is not None and self.session_config.HasField("cluster_def"):
            jobs = [each.name for each in self.session_config.cluster_def.job]
        return clusters.infer_tpu_job_name(master or "", self.tpu_config.tpu_job_name, jobs)

    def replace(self, **changes: Any) -> "RunConfig":
        """The same configuration with some settings changed.

        Giving one of save_checkpoints_steps and save_checkpoints_secs clears the other. The
        master and the cluster stay, so that a run does not move to another one half way.

        Raises:
          InvalidSetting: a name is unknown or may not be changed, or a value is refused as it
            is at construction.
        """
        for name in changes:
            if name not in _REPLACEABLE:
                raise InvalidSetting(
                    f"RunConfig.replace cannot set {name}. It sets {', '.join(_REPLACEABLE)}. "
                    f"Give others to RunConfig itself."
                )
        self._refuse_both(changes)
        for given, other in (
            ("save_checkpoints_steps", "save_checkpoints_secs"),
            ("save_checkpoints_secs", "save_checkpoints_steps"),
        ):
            if changes.get(given) is not None:
                changes.setdefault(other, None)
        config = copy.copy(self)
        for name, value in changes.items():
            config._set(name, value)
        if "tpu_config" in changes:
            config._set("has_tpu_config", True)
        config._settle_path()
        if "session_config" in changes:
            config._settle_session()
        config._check()
        return config

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _settle_first_argument(self) -> None:
        first: Any = self.tpu_config
        self._set("has_tpu_config", isinstance(first, TPUConfig))
        if isinstance(first, str | os.PathLike):
            if self.model_dir is not None:
                raise InvalidSetting(
                    f"RunConfig has {first!r} as its first argument and "
                    f"model_dir={self.model_dir!r}. Give one directory."
                )
            self._set("model_dir", first)
            self._set("tpu_config", TPUConfig())
        elif first is None:
            self._set("tpu_config", TPUConfig())
        for name in ("evaluation_master", "master"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                # So do tf_random_seed and save_summary_steps come in where they are given by
                # place, after a model_dir.
                raise InvalidType(
                    f"RunConfig {name} is {value!r}. Give an address, or None; what comes after "
                    f"a model_dir that is given first has to be given by name."
                )

    def _settle_model_dir(self) -> None:
        self._settle_path()
        given, found = self.model_dir, self.task.model_dir
        if found is not None and not isinstance(found, str):
            raise InvalidType(f"TF_CONFIG's model_dir is {found!r}. Name a directory.")
        if found == "":
            raise InvalidSetting("TF_CONFIG's model_dir is empty. Name a directory, or drop it.")
        if given and found and given != found:
            raise InvalidSetting(
                f"RunConfig model_dir is {given!r}, and TF_CONFIG's is {found!r}. Give one of "
                f"them, or the same in both."
            )
        self._set("model_dir", given or found)

    def _settle_path(self) -> None:
        if self.model_dir is None:
            return
        if not isinstance(self.model_dir, str | os.PathLike):
            raise InvalidType(
                f"RunConfig model_dir is {self.model_dir!r}. Name a directory, or leave it out."
            )
        if not os.fspath(self.model_dir):
            raise InvalidSetting(
                "RunConfig model_dir is empty. Name a directory, or leave it out for a new one."
            )
        self._set("model_dir", os.fspath(self.model_dir))

    def _settle_checkpoints(self) -> None:
        steps, secs = self.save_checkpoints_steps, self.save_checkpoints_secs
        self._refuse_both({"save_checkpoints_steps": steps, "save_checkpoints_secs": secs})
        if steps is _UNSET and secs is _UNSET:
            secs = DEFAULT_SAVE_CHECKPOINTS_SECS
        self._set("save_checkpoints_steps", None if steps is _UNSET else steps)
        self._set("save_checkpoints_secs", None if secs is _UNSET else secs)

    @staticmethod
    def _refuse_both(given: Mapping[str, Any]) -> None:
        steps = given.get("save_checkpoints_steps", _UNSET)
        secs = given.get("save_checkpoints_secs", _UNSET)
        if all(each is not None and each is not _UNSET for each in (steps, secs)):
            raise InvalidSetting(
                f"RunConfig has save_checkpoints_steps={steps} and save_checkpoints_secs={secs}. "
                f"Give one of them."
            )

    def _settle_masters(self) -> None:
        if self.cluster is not None and self.master is not None:
            raise InvalidSetting(
                f"RunConfig has both master={self.master!r} and a cluster, which has a master "
                f"of its own. Give one of them."
            )
        if self.cluster is not None:
            for name in ("master", "cluster_spec"):
                if not callable(getattr(self.cluster, name, None)):
                    raise InvalidType(
                        f"RunConfig cluster is {self.cluster!r}. Give a "
                        f"tf.distribute.cluster_resolver.ClusterResolver, or None."
                    )
            self._set("master", self.cluster.master())
            self._settle_session()
        elif self.master is None:
            self._set("master", self.task.master)
        evaluation = self.evaluation_master
        if evaluation is None:
            evaluation = self.task.evaluation_master
            if not evaluation and self.task_type != clusters.EVALUATOR:
                evaluation = self.master
        self._set("evaluation_master", evaluation)

    def _settle_session(self) -> None:
        """Puts the resolver's cluster into the session's settings."""
        self._check_session_config()
        if self.cluster is None:
            return
        if self.session_config is None:
            import tensorflow as tf

            session_config = tf.compat.v1.ConfigProto(
                allow_soft_placement=True, isolate_session_state=True
            )
        elif self.session_config.HasField("cluster_def"):
            raise InvalidSetting(
                "RunConfig has a cluster, and its session_config a cluster_def already. Give "
                "one of them."
            )
        else:
            session_config = copy.deepcopy(self.session_config)
        spec = self.cluster.cluster_spec()
        if spec:
            session_config.cluster_def.CopyFrom(spec.as_cluster_def())
        self._set("session_config", session_config)

    def _check(self) -> None:
        if not isinstance(self.tpu_config, TPUConfig):
            raise InvalidType(
                f"RunConfig tpu_config is {self.tpu_config!r}. Give a TPUConfig, or None."
            )
        for name in ("save_summary_steps", "save_checkpoints_steps", "keep_checkpoint_max"):
            validation.check(f"RunConfig {name}", getattr(self, name), least=0)
        validation.check("RunConfig log_step_count_steps", self.log_step_count_steps, least=1)
        validation.check("RunConfig tf_random_seed", self.tf_random_seed)
        delay = self.experimental_max_worker_delay_secs
        validation.check("RunConfig experimental_max_worker_delay_secs", delay)
        validation.check_duration("RunConfig save_checkpoints_secs", self.save_checkpoints_secs)
        for name, unit in (
            ("keep_checkpoint_every_n_hours", "hours"),
            ("session_creation_timeout_secs", "seconds"),
        ):
            value = getattr(self, name)
            validation.check_duration(
                f"RunConfig {name}", value, zero=False, unit=unit, optional=False
            )
        self._check_strategies()
        self._check_session_config()
        self._check_device_fn()
        if self.protocol not in _PROTOCOLS:
            raise InvalidSetting(
                f"RunConfig protocol is {self.protocol!r}. Give 'grpc', 'grpc+verbs' or None."
            )
        self._check_profile_steps()

    def _check_strategies(self) -> None:
        for name in ("train_distribute", "eval_distribute", "experimental_distribute"):
            value = getattr(self, name)
            if value is not None:
                raise InvalidSetting(
                    f"RunConfig {name} is {value!r}, and distribution strategies are not run "
                    f"here. Leave it out; use TPUEstimator with use_tpu=True for many cores."
                )

    def _check_session_config(self) -> None:
        # Asked by name, because importing TensorFlow to ask takes seconds.
        descriptor = getattr(self.session_config, "DESCRIPTOR", None)
        if (
            self.session_config is not None
            and getattr(descriptor, "full_name", None) != "tensorflow.ConfigProto"
        ):
            raise InvalidType(
                f"RunConfig session_config is {self.session_config!r}. It must be an instance "
                f"of tf.compat.v1.ConfigProto, or None."
            )

    def _check_device_fn(self) -> None:
        if self.device_fn is None:
            return
        if not callable(self.device_fn):
            raise InvalidType(
                f"RunConfig device_fn is {self.device_fn!r}. Give a function of op, or None."
            )
        # What a partial has bound by name is no longer asked for.
        names = [
            name
            for name, each in inspect.signature(self.device_fn).parameters.items()
            if not (each.kind is each.KEYWORD_ONLY and each.default is not each.empty)
        ]
        if names != ["op"]:
            raise InvalidSetting(
                f"RunConfig device_fn takes ({', '.join(names)}). It must have exactly one "
                f'argument, "op".'
            )

    def _check_profile_steps(self) -> None:
        steps = self.profile_steps
        if steps is None:
            return
        if not isinstance(steps, list | tuple) or len(steps) != 2:
            raise InvalidType(
                f"RunConfig profile_steps is {steps!r}. Give (first, last) global steps, or None."
            )
        first, last = steps
        validation.check("The first of RunConfig profile_steps", first, least=1, optional=False)
        validation.check("The last of RunConfig profile_steps", last, least=1, optional=False)
        if last < first:
            raise InvalidSetting(
                f"RunConfig profile_steps is {steps!r}: the last step is before the first. "
                f"Give (first, last)."
            )
        self._set("profile_steps", (first, last))


_FIXED = ("evaluation_master", "master", "cluster", "task", "has_tpu_config")
_REPLACEABLE = tuple(each.name for each in dataclasses.fields(RunConfig) if each.name not in _FIXED)


def _set_new(config: RunConfig, name: str, value: Any) -> None:
    # Programs hang things of their own on a config, for their model_fn to find.
    if hasattr(type(config), name) or name in type(config).__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(
            f"RunConfig {name} cannot be set once it is made. Make another one, with "
            f"replace({name}=...)."
        )
    object.__setattr__(config, name, value)


RunConfig.__setattr__ = _set_new  # type: ignore[method-assign, assignment]
