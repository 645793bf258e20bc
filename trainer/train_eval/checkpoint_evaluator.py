"""CheckpointEvaluator, which evaluates the checkpoints of a training run and calls exporters."""

import logging
import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.checkpoints.checkpoints import GLOBAL_STEP
from trainer.execution import host_agreement
from trainer.exporting.exporters.base import Exporter
from trainer.hosts.group import current_group
from trainer.train_eval.specs import EvalSpec, get_exporters

logger = logging.getLogger("tensorflow.trainer")


class CheckpointEvaluator:
    """Evaluates the checkpoints of a training run, each once, and calls the exporters.

    Attributes:
      metrics: the metrics of the last evaluation, name → value; None before the first evaluation.

    Args:
      max_steps: the global step at which training stops; None if it is unknown.
      start_delay_secs: the time from now until the first evaluation is due, in seconds.
      clock: function that returns the current time in seconds.
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
        """The global step of the last evaluated checkpoint; None before the first evaluation."""
        return None if self.metrics is None else int(self.metrics[GLOBAL_STEP])

    def is_due(self) -> bool:
        """Return whether enough time has passed for the next evaluation to begin.

        The first evaluation may begin start_delay_secs after this object was created.
        """
        return self._clock() >= self._due_from

    def evaluate(self, *, is_final: bool = False) -> bool:
        """Evaluate the newest checkpoint unless it was evaluated before, and call the exporters.

        Args:
          is_final: whether training is over. A checkpoint at max_steps also means that training is
            over.
        """
        checkpoint = host_agreement.find_same_checkpoint(
            self._estimator.latest_checkpoint, self._estimator.model_dir
        )
        if checkpoint is None:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "nothing to evaluate yet: no checkpoint in %s", self._estimator.model_dir
                )
            return False
        is_new = checkpoint != self._checkpoint
        if is_new:
            self._evaluate(checkpoint)
        is_final = is_final or self._has_reached_max_steps()
        if is_new or (is_final and not self._was_final):
            self._export(checkpoint, is_final=is_final, is_new=is_new)
            self._was_final = is_final
        return is_new

    def _evaluate(self, checkpoint: str) -> None:
        """Evaluate a checkpoint; store its metrics and the time when the next evaluation is due."""
        start = self._clock()
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
        self._due_from = start + self.spec.throttle_secs

    def _has_reached_max_steps(self) -> bool:
        step = self.global_step
        return step is not None and self._max_steps is not None and step >= self._max_steps

    def _export(self, checkpoint: str, *, is_final: bool, is_new: bool) -> None:
        earlier = [None] * len(get_exporters(self.spec)) if is_new else self.export_results
        self.export_results = [
            # Do not call an exporter again if its result shows that it has exported this
            # checkpoint: the second export would be a duplicate.
            result or self._export_with(exporter, checkpoint, is_final)
            for exporter, result in zip(get_exporters(self.spec), earlier, strict=True)
        ]

    def _export_with(self, exporter: Exporter, checkpoint: str, is_final: bool) -> bytes | None:
        metrics = self.metrics
        assert metrics is not None

        def export() -> str | None:
            directory = exporter.export(
                estimator=self._estimator,
                export_path=tf.io.gfile.join(self._estimator.model_dir, "export", exporter.name),
                checkpoint_path=checkpoint,
                eval_result=metrics,
                is_the_final_export=is_final,
            )
            return None if directory is None else os.fsdecode(directory)

        # If several hosts train, call the exporter on host 0 only: an exporter keeps state and
        # writes files, so a second call for the same checkpoint would be wrong.
        directory = current_group().run_on_first(f"the exporter {exporter.name}", export)
        return None if directory is None else os.fsencode(directory)
