"""RunConfig: the settings with which an Estimator runs, on any device.

The settings have the names and the defaults that they have in tf.estimator.RunConfig.
"""

import copy
import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import session_defaults, strategies
from trainer.config import tf_config as clusters
from trainer.config.tpu_config import InputPipelineConfig, TPUConfig

__all__ = ["InputPipelineConfig", "RunConfig", "TPUConfig"]

DEFAULT_SAVE_CHECKPOINTS_SECS = 600

# The value of RunConfig.compile_step that lets measurements decide whether XLA compiles the step.
COMPILE_AUTO = "auto"

_PROTOCOLS = (None, "grpc", "grpc+verbs")


class _Unset:
    """The type of the default of save_checkpoints_steps and save_checkpoints_secs."""

    def __repr__(self) -> str:
        return "unset"

    def __deepcopy__(self, memo: Any) -> "_Unset":
        return self


_UNSET: Any = _Unset()
_NOT_GIVEN: Any = None


@dataclass(frozen=True)
class RunConfig:
    """The settings of a run: its directory, intervals, session, devices and cluster.

    The constructor reads the environment variable TF_CONFIG.

    Attributes:
      tpu_config: the settings of the training loop; None stands for `TPUConfig()`. A path is taken
        as model_dir, which is the first argument of tf.estimator.RunConfig.
      evaluation_master: the session target of evaluation; '' is this process. None takes
        eval_session_master of TF_CONFIG. If that is missing, None takes the target of training,
        except in two cases, in which it takes ''.
      master: the session target of training; '' is this process. None takes the target of
        `cluster` or of TF_CONFIG. The constructor replaces None by the chosen target.
      cluster: a tf.distribute.cluster_resolver.ClusterResolver, as an alternative to master. The
        constructor replaces a TFConfigClusterResolver by None if it describes the cluster and task
        of TF_CONFIG, which the constructor reads itself.
      model_dir: the directory of checkpoints and summaries. None takes the directory of
        TF_CONFIG; if that is missing too, the estimator chooses a directory.
      tf_random_seed: the seed of initial values and of random ops, such as dropout; None for
        different values in each run.
      save_summary_steps: the number of steps between two TensorBoard summaries; 0 or None writes
        none.
      save_checkpoints_steps: the number of steps between two checkpoints. Set at most one of
        save_checkpoints_steps and save_checkpoints_secs; None for both disables checkpoints.
      save_checkpoints_secs: the time between two checkpoints, in seconds; 600 if neither interval
        is set.
      session_config: a tf.compat.v1.ConfigProto; None for soft placement and TensorFlow's defaults.
        In a task of TF_CONFIG's cluster, if none of tpu_config, master and cluster is passed, None
        is replaced by a ConfigProto with device filters.
      keep_checkpoint_max: the number of recent checkpoints to keep; 0 or None keeps all.
      keep_checkpoint_every_n_hours: one checkpoint of each interval of this length, in hours, is
        kept permanently. With None, every checkpoint is kept, as in tf.estimator.
      log_step_count_steps: the number of steps between two log lines with the loss and the speed,
        and between two summaries of the speed; None for neither.
      train_distribute: a tf.distribute.Strategy, which an Estimator trains with; None for none.
      eval_distribute: a tf.distribute.Strategy for evaluation, or None.
      experimental_distribute: a `DistributeConfig` with both of them, or None.
      device_fn: a function that takes one argument, `op`, and returns the device of that op; used
        on the CPU and GPU.
      protocol: the protocol of the cluster: None, 'grpc' or 'grpc+verbs'.
      experimental_max_worker_delay_secs: the maximum time that a worker waits before it starts,
        in seconds; None for 60.
      session_creation_timeout_secs: the maximum time that a worker waits for its session, in
        seconds.
      profile_steps: the first and the last global step to profile for TensorBoard, both
        included; None to disable the profiler.
      compile_step: whether XLA compiles the training step if training runs on the CPU of this
        process, without a TPU: True, False or "auto".
      task: the task of this process in the cluster of TF_CONFIG.
      has_tpu_config: whether a TPUConfig was passed.

    Raises:
      InvalidSetting: an argument is out of range or contradicts another argument or TF_CONFIG.
      InvalidType: an argument has a wrong type.
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
    keep_checkpoint_every_n_hours: float | None = 10_000
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
    compile_step: bool | str = COMPILE_AUTO
    task: clusters.ClusterTask = field(init=False, repr=False)
    has_tpu_config: bool = field(init=False, repr=False, compare=False)

    # The names of the fields that a subclass overrides by properties; empty in RunConfig.
    _overridden: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a subclass override a setting by a property.

        A property without a setter gets a setter, because the constructor assigns to every setting.
        """
        super().__init_subclass__(**options)
        members = {
            name: inspect.getattr_static(cls, name, None) for name in RunConfig.__dataclass_fields__
        }
        properties = {
            name: member for name, member in members.items() if isinstance(member, property)
        }
        cls._overridden = frozenset(properties)
        for name, member in properties.items():
            if member.fset is None:
                setattr(cls, name, property(member.fget, _make_field_setter(name)))

    def __post_init__(self) -> None:
        self._resolve_first_argument()
        has_strategy = (self.train_distribute, self.experimental_distribute) != (None, None)
        self._set("task", clusters.read_cluster_task(os.environ, worker_leads=has_strategy))
        self._resolve_model_dir()
        self._resolve_checkpoint_interval()
        self._resolve_masters()
        self._check()
        self._resolve_strategies()

    @property
    def task_type(self) -> str:
        """The task type of this process; 'worker' without a cluster."""
        return self.task.task_type

    @property
    def task_id(self) -> int:
        """The index of this task within its type."""
        return self.task.task_id

    @property
    def is_chief(self) -> bool:
        """Whether this process saves checkpoints and summaries."""
        return self.task.is_chief

    @property
    def num_worker_replicas(self) -> int:
        """The number of tasks that train, including the chief."""
        return self.task.num_worker_replicas

    @property
    def num_ps_replicas(self) -> int:
        """The number of parameter servers of the cluster."""
        return self.task.num_ps_replicas

    @property
    def global_id_in_cluster(self) -> int | None:
        """The index of this task among all tasks; None for an evaluator."""
        return self.task.global_id_in_cluster

    @property
    def service(self) -> Mapping[str, Any] | None:
        """The dict "service" in TF_CONFIG, in which a platform describes itself, or None."""
        return self.task.service

    @property
    def cluster_spec(self) -> Any:
        """The tf.train.ClusterSpec of `cluster` or of TF_CONFIG; empty if there is no cluster."""
        # Import TensorFlow here and not at the top, because the import takes seconds and a program
        # that only configures a run does not need it.
        import tensorflow as tf

        if self.cluster is not None:
            return self.cluster.cluster_spec()
        return tf.train.ClusterSpec({job: dict(tasks) for job, tasks in self.task.jobs.items()})

    def tpu_job(self, mode: str) -> str | None:
        """Return the job name of the TPU workers in a mode; None if this process is the TPU worker.

        Args:
          mode: one of `ModeKeys`; 'eval' uses evaluation_master, and all other modes use master.

        Raises:
          InvalidSetting: the session's cluster has several jobs, and tpu_job_name is not set.
        """
        master = self.evaluation_master if mode == "eval" else self.master
        jobs: list[str] = []
        if self.session_config is not None and self.session_config.HasField("cluster_def"):
            jobs = [job.name for job in self.session_config.cluster_def.job]
        return clusters.infer_tpu_job_name(master or "", self.tpu_config.tpu_job_name, jobs)

    def replace(self, **changes: Any) -> "RunConfig":
        """Return a copy with some settings changed.

        Setting one of save_checkpoints_steps and save_checkpoints_secs clears the other. The
        master and the cluster cannot be changed, because a run cannot move to another cluster.

        Args:
          changes: attribute name → new value.

        Raises:
          InvalidSetting: an attribute is unknown or cannot be changed, or a value is out of range.
          InvalidType: a value has a wrong type.
        """
        for name in changes:
            if name not in _REPLACEABLE:
                raise InvalidSetting(
                    f"RunConfig.replace cannot set {name}. It sets {', '.join(_REPLACEABLE)}. "
                    f"Give others to RunConfig itself."
                )
        self._check_one_interval(changes)
        for interval, other in (
            ("save_checkpoints_steps", "save_checkpoints_secs"),
            ("save_checkpoints_secs", "save_checkpoints_steps"),
        ):
            if changes.get(interval) is not None:
                changes.setdefault(other, None)
        config = copy.copy(self)
        for name, value in changes.items():
            config._set(name, value)
        if "tpu_config" in changes:
            config._set("has_tpu_config", True)
        config._normalize_model_dir()
        if "session_config" in changes:
            config._resolve_session_config()
        config._check()
        config._resolve_strategies()
        return config

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _resolve(self, name: str, value: Any) -> None:
        """Store the final value of a setting, unless a subclass overrides it by a property."""
        if name not in self._overridden:
            self._set(name, value)

    def _resolve_first_argument(self) -> None:
        """Use the constructor's first argument as tpu_config or, if it is a path, as model_dir."""
        first: Any = self.tpu_config
        self._set("has_tpu_config", isinstance(first, TPUConfig))
        if isinstance(first, str | os.PathLike):
            if self.model_dir is not None:
                raise InvalidSetting(
                    f"RunConfig has {first!r} as its first argument and "
                    f"model_dir={self.model_dir!r}. Give one directory."
                )
            self._resolve("model_dir", first)
            self._resolve("tpu_config", TPUConfig())
        elif first is None:
            self._resolve("tpu_config", TPUConfig())
        for name in ("evaluation_master", "master"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                # Refuse a value that is not a string.
                raise InvalidType(
                    f"RunConfig {name} is {value!r}. Give an address, or None. If the first "
                    f"argument is a model_dir, pass the other arguments by name."
                )

    def _resolve_model_dir(self) -> None:
        """Take model_dir from the argument or from TF_CONFIG; refuse two different directories."""
        self._normalize_model_dir()
        argument, from_environment = self.model_dir, self.task.model_dir
        if from_environment is not None and not isinstance(from_environment, str):
            raise InvalidType(f"TF_CONFIG's model_dir is {from_environment!r}. Name a directory.")
        if from_environment == "":
            raise InvalidSetting("TF_CONFIG's model_dir is empty. Name a directory, or drop it.")
        if argument and from_environment and argument != from_environment:
            raise InvalidSetting(
                f"RunConfig model_dir is {argument!r}, and TF_CONFIG's is {from_environment!r}. "
                f"Give one of them, or the same in both."
            )
        self._resolve("model_dir", argument or from_environment)

    def _normalize_model_dir(self) -> None:
        """Validate model_dir, and convert a path object to a string."""
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
        self._resolve("model_dir", os.fspath(self.model_dir))

    def _resolve_checkpoint_interval(self) -> None:
        """Set save_checkpoints_secs to its default if neither checkpoint interval was passed."""
        steps, secs = self.save_checkpoints_steps, self.save_checkpoints_secs
        self._check_one_interval({"save_checkpoints_steps": steps, "save_checkpoints_secs": secs})
        if steps is _UNSET and secs is _UNSET:
            secs = DEFAULT_SAVE_CHECKPOINTS_SECS
        self._resolve("save_checkpoints_steps", None if steps is _UNSET else steps)
        self._resolve("save_checkpoints_secs", None if secs is _UNSET else secs)

    @staticmethod
    def _check_one_interval(settings: Mapping[str, Any]) -> None:
        """Check that save_checkpoints_steps and save_checkpoints_secs are not both set."""
        steps = settings.get("save_checkpoints_steps", _UNSET)
        secs = settings.get("save_checkpoints_secs", _UNSET)
        if all(interval is not None and interval is not _UNSET for interval in (steps, secs)):
            raise InvalidSetting(
                f"RunConfig has save_checkpoints_steps={steps} and save_checkpoints_secs={secs}. "
                f"Give one of them."
            )

    def _resolve_masters(self) -> None:
        """Set master and evaluation_master from the arguments, from `cluster` or from TF_CONFIG."""
        if self.cluster is not None and self._is_resolved_by_tf_config():
            self._resolve("cluster", None)
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
            self._resolve("master", self.cluster.master())
            self._resolve_session_config()
        elif self.master is None:
            self._resolve("master", self.task.master)
            if self.task.jobs and not self.has_tpu_config:
                self._resolve_as_plain_task()
        evaluation = self.evaluation_master
        if evaluation is None:
            evaluation = self.task.evaluation_master
            if not evaluation and self.task_type != clusters.EVALUATOR:
                evaluation = self.master
        self._resolve("evaluation_master", evaluation)

    def _resolve_as_plain_task(self) -> None:
        """Set evaluation_master and session_config as tf.estimator.RunConfig does."""
        if self.evaluation_master is None:
            self._resolve("evaluation_master", self.task.evaluation_master)
        if self.session_config is None and session_defaults.has_device_filters(self.task):
            self._resolve("session_config", session_defaults.make_session_config(self.task))

    def _is_resolved_by_tf_config(self) -> bool:
        classes = {base.__name__ for base in type(self.cluster).__mro__}
        cluster = clusters.read_tf_config(os.environ).get("cluster")
        if "TFConfigClusterResolver" not in classes or not cluster:
            return False
        import tensorflow as tf

        own = (self.task_type, self.task_id, tf.train.ClusterSpec(cluster))
        resolver = self.cluster
        return (resolver.task_type, resolver.task_id, resolver.cluster_spec()) == own

    def _resolve_session_config(self) -> None:
        """Add to session_config the cluster that the cluster resolver describes."""
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
        self._resolve("session_config", session_config)

    def _check(self) -> None:
        """Check the types and ranges of all settings, and round up numbers such as 1000 / 8."""
        if not isinstance(self.tpu_config, TPUConfig):
            raise InvalidType(
                f"RunConfig tpu_config is {self.tpu_config!r}. Give a TPUConfig, or None."
            )
        for name in ("save_summary_steps", "save_checkpoints_steps", "keep_checkpoint_max"):
            self._resolve(
                name, validation.round_up_steps(f"RunConfig {name}", getattr(self, name), least=0)
            )
        every_n_steps = validation.round_up_steps(
            "RunConfig log_step_count_steps", self.log_step_count_steps
        )
        self._resolve("log_step_count_steps", every_n_steps)
        validation.check_integer("RunConfig tf_random_seed", self.tf_random_seed, optional=True)
        delay = self.experimental_max_worker_delay_secs
        validation.check_integer(
            "RunConfig experimental_max_worker_delay_secs", delay, optional=True
        )
        validation.check_number(
            "RunConfig save_checkpoints_secs", self.save_checkpoints_secs, least=0, optional=True
        )
        validation.check_number(
            "RunConfig keep_checkpoint_every_n_hours",
            self.keep_checkpoint_every_n_hours,
            above=0,
            optional=True,
        )
        validation.check_number(
            "RunConfig session_creation_timeout_secs", self.session_creation_timeout_secs, above=0
        )
        self._check_session_config()
        self._check_device_fn()
        if self.protocol not in _PROTOCOLS:
            raise InvalidSetting(
                f"RunConfig protocol is {self.protocol!r}. Give 'grpc', 'grpc+verbs' or None."
            )
        self._check_profile_steps()
        if not isinstance(self.compile_step, bool) and self.compile_step != COMPILE_AUTO:
            raise InvalidSetting(
                f"RunConfig compile_step is {self.compile_step!r}. Give True, False or "
                f"{COMPILE_AUTO!r}."
            )

    def _resolve_strategies(self) -> None:
        """Check the strategies, and take those of experimental_distribute."""
        names = ("train_distribute", "eval_distribute", "experimental_distribute")
        given = {name: getattr(self, name) for name in names}
        for name, strategy in strategies.resolve_strategies(given).items():
            self._resolve(name, strategy)

    def _check_session_config(self) -> None:
        # Compare the name of the type. A call of isinstance would need TensorFlow, whose import
        # takes seconds.
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
        # Do not count keyword-only arguments with a default, such as the arguments that
        # functools.partial has bound: TensorFlow calls device_fn without them.
        names = [
            name
            for name, parameter in inspect.signature(self.device_fn).parameters.items()
            if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty
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
        validation.check_integer("The first of RunConfig profile_steps", first, least=1)
        validation.check_integer("The last of RunConfig profile_steps", last, least=1)
        if last < first:
            raise InvalidSetting(
                f"RunConfig profile_steps is {steps!r}: the last step is before the first. "
                f"Give (first, last)."
            )
        self._set("profile_steps", (first, last))


def _make_field_setter(name: str) -> Callable[[RunConfig, Any], None]:
    def set_field(config: RunConfig, value: Any) -> None:
        vars(config)[name] = value

    return set_field


class _FieldValue:
    """A descriptor that returns the value of one field of a RunConfig."""

    def __init__(self, name: str, default: Any) -> None:
        self._name, self._default = name, default

    def __get__(self, config: RunConfig | None, owner: type) -> Any:
        return self._default if config is None else vars(config)[self._name]


_FIXED_FIELDS = ("evaluation_master", "master", "cluster", "task", "has_tpu_config")
_REPLACEABLE = tuple(
    field.name for field in dataclasses.fields(RunConfig) if field.name not in _FIXED_FIELDS
)


def _set_new_attribute(config: RunConfig, name: str, value: Any) -> None:
    if hasattr(type(config), name) or name in type(config).__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(
            f"RunConfig {name} cannot be set after construction. Make a changed copy, with "
            f"replace({name}=...)."
        )
    object.__setattr__(config, name, value)


for _field in dataclasses.fields(RunConfig):
    if _field.default is not dataclasses.MISSING:
        setattr(RunConfig, _field.name, _FieldValue(_field.name, _field.default))

RunConfig.__setattr__ = _set_new_attribute  # type: ignore[method-assign, assignment]
