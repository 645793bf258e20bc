from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer.hooks.checkpoint_hooks import StopAtCheckpointHook, make_stop_at_checkpoint_step_hook

v1 = tf.compat.v1


def test_a_chief_stops_at_the_step(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=1)
    hook = make_stop_at_checkpoint_step_hook(estimator, 3)
    estimator.train(programs.ones(), hooks=[hook], max_steps=10)
    assert programs.variable(tmp_path, "global_step") == 3


@pytest.mark.slow
def test_a_worker_stops_only_once_the_checkpoint_is_there(tmp_path: Path) -> None:
    chief = programs.estimator(tmp_path / "chief")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        chief.train(programs.ones(), max_steps=len(waits) * 2)

    worker = programs.estimator(tmp_path / "worker", iterations_per_loop=2)
    hook: Any = StopAtCheckpointHook(chief.model_dir, 4, 7, sleep)
    worker.train(programs.ones(), hooks=[hook], max_steps=10)
    assert waits == [7, 7]
    assert programs.variable(tmp_path / "worker", "global_step") == 4


def test_a_step_and_a_directory_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="last_step is None"):
        make_stop_at_checkpoint_step_hook(programs.estimator(tmp_path), None)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="model_dir is ''"):
        StopAtCheckpointHook("", 1)
