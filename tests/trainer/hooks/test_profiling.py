from pathlib import Path

import trainer
from tests.trainer import programs


def estimator(model_dir: Path, steps: tuple[int, int]) -> trainer.TPUEstimator:
    config = trainer.RunConfig(trainer.TPUConfig(4), model_dir=str(model_dir), profile_steps=steps)
    return trainer.TPUEstimator(
        programs.slope_model_fn, config=config, params={"rate": 0.5}, use_tpu=False
    )


def test_a_range_of_steps_is_captured_once(tmp_path: Path) -> None:
    estimator(tmp_path, (5, 6)).train(programs.ones(), max_steps=16)
    (profile,) = (tmp_path / "plugins" / "profile").iterdir()
    assert any(path.stat().st_size for path in profile.iterdir())


def test_a_range_that_training_does_not_reach_is_not_captured(tmp_path: Path) -> None:
    estimator(tmp_path, (50, 60)).train(programs.ones(), max_steps=8)
    assert not (tmp_path / "plugins").exists()


def test_a_range_that_training_ends_in_is_captured_up_to_there(tmp_path: Path) -> None:
    estimator(tmp_path, (5, 60)).train(programs.ones(), max_steps=8)
    assert (tmp_path / "plugins" / "profile").exists()


def test_the_profiler_hook_writes_timelines_of_loops(tmp_path: Path) -> None:
    hook = trainer.ProfilerHook(save_steps=4, output_dir=str(tmp_path / "timelines"))
    programs.estimator(tmp_path).train(programs.ones(), hooks=[hook], max_steps=12)
    assert list((tmp_path / "timelines").glob("timeline-*.json"))
