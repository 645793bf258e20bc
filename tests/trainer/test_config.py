import subprocess
import sys

import pytest

from tpuserve.errors import InvalidSetting
from trainer.config import RunConfig, TPUConfig


def checkpoints(config: RunConfig) -> tuple[int | None, int | None]:
    return config.save_checkpoints_steps, config.save_checkpoints_secs


def test_checkpoints_come_every_ten_minutes_unless_something_else_is_said() -> None:
    assert checkpoints(RunConfig()) == (None, 600)
    assert checkpoints(RunConfig(save_checkpoints_steps=50)) == (50, None)
    assert checkpoints(RunConfig(save_checkpoints_secs=5)) == (None, 5)
    off = RunConfig(save_checkpoints_steps=None, save_checkpoints_secs=None)
    assert checkpoints(off) == (None, None)


def test_steps_and_seconds_between_checkpoints_exclude_each_other() -> None:
    with pytest.raises(InvalidSetting, match="save_checkpoints_steps=5 and .*_secs=6"):
        RunConfig(save_checkpoints_steps=5, save_checkpoints_secs=6)


def test_replacing_one_of_them_clears_the_other() -> None:
    assert checkpoints(RunConfig().replace(save_checkpoints_steps=7)) == (7, None)
    steps = RunConfig(save_checkpoints_steps=7)
    assert checkpoints(steps.replace(save_checkpoints_secs=9)) == (None, 9)
    assert checkpoints(steps.replace(model_dir="/m")) == (7, None)


@pytest.mark.parametrize("iterations", [0, -1, 1.5, "10", True, None])
def test_iterations_per_loop_is_a_positive_whole_number(iterations: object) -> None:
    with pytest.raises(InvalidSetting, match=f"iterations_per_loop is {iterations!r}"):
        TPUConfig(iterations)  # type: ignore[arg-type]


def test_a_bad_setting_is_a_value_error_as_it_was_in_tf_estimator() -> None:
    with pytest.raises(ValueError, match="model_dir is empty"):
        RunConfig(model_dir="")
    with pytest.raises(ValueError, match="save_summary_steps is -1"):
        RunConfig(save_summary_steps=-1)


@pytest.mark.slow
def test_importing_trainer_imports_no_tensorflow_and_chooses_legacy_keras() -> None:
    program = (
        "import os, sys; os.environ.pop('TF_USE_LEGACY_KERAS', None); import trainer\n"
        "assert 'tensorflow' not in sys.modules\n"
        "assert os.environ['TF_USE_LEGACY_KERAS'] == '1'\n"
        "assert 'TPUEstimator' in dir(trainer)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_every_public_name_can_be_imported() -> None:
    import trainer

    for name in trainer.__all__:
        assert getattr(trainer, name).__doc__
    assert sorted(trainer._HOMES) == trainer.__all__
