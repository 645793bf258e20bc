from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import CheckpointNotFound, InvalidSetting, InvalidType
from trainer.checkpoints import warm_start

v1 = tf.compat.v1


@pytest.fixture
def first(tmp_path: Path) -> trainer.TPUEstimator:
    """Return an estimator that has trained the slope model for three steps: w = 0.875."""
    return programs.estimator(tmp_path / "first").train(programs.ones(), max_steps=3)


def second(tmp_path: Path, warm_start_from: Any) -> Any:
    """Train one step with a warm start, which halves 1 - w; return w."""
    estimator = programs.estimator(tmp_path / "second", warm_start_from=warm_start_from)
    estimator.train(programs.ones(), max_steps=1)
    return estimator.get_variable_value("w")


def test_values_come_from_a_directory_of_checkpoints(
    tmp_path: Path, first: trainer.TPUEstimator
) -> None:
    assert second(tmp_path, first.model_dir) == 1 - 0.5**4


def test_values_come_from_one_checkpoint(tmp_path: Path, first: trainer.TPUEstimator) -> None:
    assert second(tmp_path, f"{first.model_dir}/model.ckpt-0") == 0.5


@pytest.mark.slow
def test_values_come_from_a_saved_model(tmp_path: Path, first: trainer.TPUEstimator) -> None:
    def receiver_fn() -> Any:
        x = v1.placeholder(tf.float32, [None, 1])
        return trainer.ServingInputReceiver({"x": x}, {"x": x})

    exported = first.export_saved_model(str(tmp_path / "export"), receiver_fn).decode()
    for number, source in enumerate(
        (exported, f"{exported}/variables", trainer.WarmStartSettings(exported))
    ):
        assert second(tmp_path / str(number), source) == 1 - 0.5**4


@pytest.mark.slow
def test_settings_choose_variables_by_name(tmp_path: Path, first: trainer.TPUEstimator) -> None:
    none = trainer.WarmStartSettings(first.model_dir, vars_to_warm_start="no such")
    assert second(tmp_path / "a", none) == 0.5
    renamed = trainer.WarmStartSettings(first.model_dir, var_name_to_prev_var_name={"w": "w"})
    assert second(tmp_path / "b", renamed) == 1 - 0.5**4


@pytest.mark.slow
def test_a_warm_start_that_names_the_global_step_goes_on_from_it(
    tmp_path: Path, first: trainer.TPUEstimator
) -> None:
    both = trainer.WarmStartSettings(first.model_dir, vars_to_warm_start=["w", "global_step"])

    for number, (steps, max_steps, last) in enumerate(((None, 7, 7), (4, None, 7), (None, 3, 3))):
        estimator = programs.estimator(tmp_path / str(number), warm_start_from=both)
        estimator.train(programs.ones(), steps=steps, max_steps=max_steps)
        assert estimator.get_variable_value("global_step") == last
        assert estimator.get_variable_value("w") == 1 - 0.5**last


@pytest.mark.slow
def test_a_checkpoint_of_its_own_comes_first(tmp_path: Path, first: trainer.TPUEstimator) -> None:
    programs.estimator(tmp_path / "second").train(programs.ones(), max_steps=1)
    estimator = programs.estimator(tmp_path / "second", warm_start_from=first.model_dir)
    estimator.train(programs.ones(), max_steps=2)
    assert estimator.get_variable_value("w") == 0.75


def test_what_names_no_checkpoint_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="`ckpt_to_initialize_from` MUST be set"):
        trainer.WarmStartSettings("")
    with pytest.raises(InvalidSetting, match="warm_start_from is empty"):
        warm_start.to_warm_start_settings("")
    with pytest.raises(InvalidType, match="warm_start_from is 3"):
        warm_start.to_warm_start_settings(3)


def test_an_embedding_follows_its_words_into_another_vocabulary(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        start = v1.constant_initializer(params["start"])
        words = v1.get_variable("words", [3, 1], initializer=start)
        count = v1.assign_add(v1.train.get_global_step(), 1)
        step = tf.group(words.assign_add([[0.0], [0.0], [1.0]]), count)
        return trainer.EstimatorSpec(mode, loss=tf.reduce_sum(words), train_op=step)

    for name, words in (("old", "a\nb\nc"), ("new", "c\nb\na")):
        (tmp_path / f"{name}.txt").write_text(words + "\n")
    old = trainer.Estimator(model_fn, str(tmp_path / "old"), params={"start": [1.0, 2.0, 2.0]})
    old.train(programs.ones(), max_steps=1)
    info = trainer.VocabInfo(
        str(tmp_path / "new.txt"), 3, 0, str(tmp_path / "old.txt"), old_vocab_size=3
    )
    settings = trainer.WarmStartSettings(old.model_dir, var_name_to_vocab_info={"words": info})
    new = trainer.Estimator(
        model_fn, str(tmp_path / "new"), params={"start": [0.0] * 3}, warm_start_from=settings
    )
    new.train(programs.ones(), max_steps=1)
    # In the old checkpoint the values of a, b and c are 1, 2 and 3. The new order is c, b, a, and
    # the step of the new training has added 1 to the last row.
    assert new.get_variable_value("words").tolist() == [[3.0], [2.0], [2.0]]


@pytest.mark.parametrize("path", ["absent", "absent/model.ckpt-3", ""])
def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path, path: str) -> None:
    estimator = programs.estimator(tmp_path / "new", warm_start_from=str(tmp_path / path))
    message = f"no checkpoint to warm start from: .*{path}"
    with pytest.raises(CheckpointNotFound, match=message) as refused:
        estimator.train(programs.ones(), max_steps=1)
    # Programs catch the error that tf.estimator raises.
    assert isinstance(refused.value, tf.errors.NotFoundError)
