from pathlib import Path

import pytest

from trainer import training_end

pytestmark = pytest.mark.slow


def test_the_end_is_known_once_it_is_declared(tmp_path: Path) -> None:
    assert training_end.step_of(str(tmp_path), 10) is None
    training_end.declare(str(tmp_path), 7, 10)
    training_end.declare(str(tmp_path), 8, 10)
    assert training_end.step_of(str(tmp_path), 10) == 8


def test_the_end_of_another_training_does_not_count(tmp_path: Path) -> None:
    training_end.declare(str(tmp_path), 7, 10)
    assert training_end.step_of(str(tmp_path), 20) is None


def test_a_training_that_goes_on_has_no_end(tmp_path: Path) -> None:
    training_end.declare(str(tmp_path), 7, None)
    training_end.withdraw(str(tmp_path))
    training_end.withdraw(str(tmp_path))
    assert training_end.step_of(str(tmp_path), None) is None
