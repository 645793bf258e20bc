from pathlib import Path

import tensorflow as tf

from tests.trainer.compat import program_runner
from trainer.compat.checkpoint_step import read_latest_global_step


def test_step_is_that_of_the_newest_checkpoint(tmp_path: Path) -> None:
    path = program_runner.write_checkpoint(tmp_path / "model.ckpt-7", {"global_step": 7})
    tf.compat.v1.train.update_checkpoint_state(str(tmp_path), path)
    assert read_latest_global_step(str(tmp_path)) == 7


def test_step_is_zero_without_a_readable_checkpoint(tmp_path: Path) -> None:
    assert read_latest_global_step(str(tmp_path / "none")) == 0
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"')
    assert read_latest_global_step(str(tmp_path)) == 0
    program_runner.write_checkpoint(tmp_path / "model.ckpt-9", {"other": 9})
    assert read_latest_global_step(str(tmp_path)) == 0
