"""How a run is set up: RunConfig for any device, TPUConfig for what only a TPU loop has.

Names and defaults are those of tf.estimator's classes of the same names.
"""

import dataclasses
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer import counts

DEFAULT_SAVE_CHECKPOINTS_SECS = 600


class _Unset:
    """Tells "not given" from None, which switches checkpoints off."""

    def __repr__(self) -> str:
        return "unset"


_UNSET: Any = _Unset()


@dataclass(frozen=True)
class TPUConfig:
    """What the training loop needs to know.

    Attributes:
      iterations_per_loop: steps that one `session.run` makes, on every device. Hooks,
        checkpoints and summaries come between loops, so this is also the least distance
        between two of them.
      num_shards: TPU cores to train on; a machine without a TPU does not look at it.
    """

    iterations_per_loop: int = 2
    num_shards: int | None = None

    def __post_init__(self) -> None:
        name = "TPUConfig iterations_per_loop"
        counts.check(name, self.iterations_per_loop, least=1, optional=False)
        counts.check("TPUConfig num_shards", self.num_shards, least=1)


@dataclass(frozen=True)
class RunConfig:
    """Where a run writes, how often, and with which session.

    Attributes:
      tpu_config: see `TPUConfig`.
      model_dir: where checkpoints and summaries go; None leaves it to the estimator.
      tf_random_seed: makes initial values and dropout repeatable.
      save_summary_steps: steps between two TensorBoard summaries; 0 or None for none.
      save_checkpoints_steps, save_checkpoints_secs: distance between two checkpoints, in steps
        or in seconds; 600 seconds when neither is given, no checkpoints when both are None.
      session_config: a tf.compat.v1.ConfigProto; None for soft placement and defaults.
      keep_checkpoint_max: how many recent checkpoints are kept; 0 or None keeps all.
      keep_checkpoint_every_n_hours: one checkpoint per so many hours is kept for good.
      log_step_count_steps: steps between two lines that say the loss and the speed.
    """

    tpu_config: TPUConfig = field(default_factory=TPUConfig)
    _: KW_ONLY
    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _UNSET
    save_checkpoints_secs: int | None = _UNSET
    session_config: Any = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10_000
    log_step_count_steps: int | None = 100

    def __post_init__(self) -> None:
        self._settle_checkpoints()
        if self.tpu_config is None:
            object.__setattr__(self, "tpu_config", TPUConfig())
        if self.model_dir == "":
            raise InvalidSetting(
                "RunConfig model_dir is empty. Name a directory, or leave it out for a new one."
            )
        for name in (
            "save_summary_steps",
            "save_checkpoints_steps",
            "save_checkpoints_secs",
            "keep_checkpoint_max",
            "tf_random_seed",
        ):
            counts.check(f"RunConfig {name}", getattr(self, name), least=0)
        counts.check("RunConfig log_step_count_steps", self.log_step_count_steps, least=1)

    def _settle_checkpoints(self) -> None:
        steps, secs = self.save_checkpoints_steps, self.save_checkpoints_secs
        if steps not in (_UNSET, None) and secs not in (_UNSET, None):
            raise InvalidSetting(
                f"RunConfig has save_checkpoints_steps={steps} and save_checkpoints_secs={secs}. "
                f"Give one of them."
            )
        if steps is _UNSET and secs is _UNSET:
            secs = DEFAULT_SAVE_CHECKPOINTS_SECS
        object.__setattr__(self, "save_checkpoints_steps", None if steps is _UNSET else steps)
        object.__setattr__(self, "save_checkpoints_secs", None if secs is _UNSET else secs)

    def replace(self, **changes: Any) -> "RunConfig":
        """The same configuration with some fields changed.

        Giving one of save_checkpoints_steps and save_checkpoints_secs clears the other.
        """
        for given, other in (
            ("save_checkpoints_steps", "save_checkpoints_secs"),
            ("save_checkpoints_secs", "save_checkpoints_steps"),
        ):
            if changes.get(given) is not None:
                changes.setdefault(other, None)
        return dataclasses.replace(self, **changes)
