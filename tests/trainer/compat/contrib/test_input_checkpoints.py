import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer import programs
from trainer.compat.contrib import data

pytestmark = pytest.mark.slow
v1 = tf.compat.v1


class Interrupt(tf.compat.v1.train.SessionRunHook):
    """Ends a training with an error after a global step, so that nothing is saved at its end."""

    def __init__(self, last_step: int) -> None:
        self._last_step = last_step

    def begin(self) -> None:
        self._global_step = v1.train.get_global_step()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.run(self._global_step) >= self._last_step:
            raise InterruptedError


def train(model_dir: Path, *, steps: int, last_step: int = 100) -> list[int]:
    """Train in loops of 4 steps with a checkpoint every 8 steps; return the rows that were read."""
    rows: list[int] = []

    def record(row: Any) -> Any:
        rows.append(int(row[0]))
        return np.float32(0)

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        recorded = tf.numpy_function(record, [features["row"]], tf.float32)
        with tf.control_dependencies([recorded]):
            x = tf.ones_like(labels)
            return programs.slope_model_fn({"x": x}, labels, mode, params)

    def input_fn() -> Any:
        return tf.data.Dataset.range(100).map(lambda row: ({"row": row}, 1.0)).batch(1)

    estimator = programs.estimator(
        model_dir, model_fn=model_fn, iterations_per_loop=4, save_checkpoints_steps=8
    )
    hooks = [data.CheckpointInputPipelineHook(estimator), Interrupt(last_step)]
    with contextlib.suppress(InterruptedError):
        estimator.train(input_fn, steps=steps, hooks=hooks)
    return rows


@pytest.mark.parametrize(("last_step", "checkpoint"), [(4, 0), (8, 8), (12, 8)])
def test_an_interrupted_training_goes_on_at_the_batch_of_its_checkpoint(
    tmp_path: Path, last_step: int, checkpoint: int
) -> None:
    assert train(tmp_path, steps=40, last_step=last_step) == list(range(last_step))
    saved = tf.train.latest_checkpoint(str(tmp_path), "checkpoint_input")
    assert saved == str(tmp_path / f"input.ckpt-{checkpoint}")
    assert programs.variable(tmp_path, "global_step") == checkpoint
    assert train(tmp_path, steps=4) == list(range(checkpoint, checkpoint + 4))
