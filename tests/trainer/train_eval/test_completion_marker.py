from pathlib import Path

from trainer.train_eval import distributed


def test_the_end_is_known_once_it_is_declared(tmp_path: Path) -> None:
    assert distributed.read_completed_step(str(tmp_path), 10) is None
    distributed.write_marker(str(tmp_path), 7, 10)
    distributed.write_marker(str(tmp_path), 8, 10)
    assert distributed.read_completed_step(str(tmp_path), 10) == 8


def test_the_end_of_another_training_does_not_count(tmp_path: Path) -> None:
    distributed.write_marker(str(tmp_path), 7, 10)
    assert distributed.read_completed_step(str(tmp_path), 20) is None


def test_a_training_that_goes_on_has_no_end(tmp_path: Path) -> None:
    distributed.write_marker(str(tmp_path), 7, None)
    distributed.remove_marker(str(tmp_path))
    distributed.remove_marker(str(tmp_path))
    assert distributed.read_completed_step(str(tmp_path), None) is None
