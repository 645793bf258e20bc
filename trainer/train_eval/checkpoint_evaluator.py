"""CheckpointEvaluator: evaluates each checkpoint at most once, and lets exporters have it."""

import logging
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.checkpoints.checkpoints import GLOBAL_STEP
from trainer.exporting.exporters.base import Exporter
from trainer.train_eval.specs import EvalSpec, get_exporters

logger = logging.getLogger("tensorflow.trainer")


class CheckpointEvaluator:
    """Evaluates what training writes, as one EvalSpec wants it.

    Attributes:
      spec: the EvalSpec.
      metrics: of the last evaluation; None before the first.
      export_results: what each exporter returned for it, in the order of the exporters.
    """

    def __init__(
        self,
        estimator: Any,
        spec: EvalSpec,
        max_steps: int | None,
        *,
        start_delay_secs: float = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Evaluates nothing yet.

        Args:
          estimator: whose checkpoints to evaluate.
          spec: how.
          max_steps: the global step that training stops at, if it is known.
          start_delay_secs: how long from now nothing is due.
          clock: gives the time in seconds.
        """
        self.spec = spec
        self.metrics: dict[str, Any] | None = None
        self.export_results: list[bytes | None] = []
        self._estimator = estimator
        self._max_steps = max_steps
        self._clock = clock
        self._due_from = clock() + start_delay_secs
        self._checkpoint: str | None = None
        self._was_final = False
        self._has_warned = False

    @property
    def global_step(self) -> int | None:
        """The step of the last checkpoint that was evaluated."""
        return None if self.metrics is None else int(self.metrics[GLOBAL_STEP])

    def is_due(self) -> bool:
        """Whether enough time has gone by since the last evaluation began."""
        return self._clock() >= self._due_from

    def evaluate(self, *, is_final: bool = False) -> bool:
        """Evaluates the newest checkpoint, unless it was evaluated before.

        Args:
          is_final: training is over; exporters are told so even of a checkpoint that was
            evaluated before. It is also over with a checkpoint of max_steps.

        Returns:
          Whether there was a new checkpoint.
        """
        checkpoint = self._estimator.latest_checkpoint()
        if checkpoint is None:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "nothing to evaluate yet: no checkpoint in %s", self._estimator.model_dir
                )
            return False
        is_new = checkpoint != self._checkpoint
        if is_new:
            started = self._clock()
            self.metrics = dict(
                self._estimator.evaluate(
                    self.spec.input_fn,
                    steps=self.spec.steps,
                    hooks=self.spec.hooks,
                    checkpoint_path=checkpoint,
                    name=self.spec.name,
                )
            )
            self._checkpoint = checkpoint
            self._due_from = started + self.spec.throttle_secs
        is_final = is_final or self._has_reached_the_end()
        if is_new or (is_final and not self._was_final):
            self._export(checkpoint, is_final=is_final, is_new=is_new)
            self._was_final = is_final
        return is_new

    def _has_reached_the_end(self) -> bool:
        step = self.global_step
        return step is not None and self._max_steps is not None and step >= self._max_steps

    def _export(self, checkpoint: str, *, is_final: bool, is_new: bool) -> None:
        earlier = [None] * len(get_exporters(self.spec)) if is_new else self.export_results
        self.export_results = [
            # Who has exported this checkpoint already does not get it a second time.
            result or self._export_with(exporter, checkpoint, is_final)
            for exporter, result in zip(get_exporters(self.spec), earlier, strict=True)
        ]

    def _export_with(self, exporter: Exporter, checkpoint: str, is_final: bool) -> bytes | None:
        assert self.metrics is not None
        return exporter.export(
            estimator=self._estimator,
            export_path=tf.io.gfile.join(self._estimator.model_dir, "export", exporter.name),
            checkpoint_path=checkpoint,
            eval_result=self.metrics,
            is_the_final_export=is_final,
        )
