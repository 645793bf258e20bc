import pytest

from tests.trainer.compat import program_runner

pytestmark = pytest.mark.slow


def test_a_program_finds_names_at_the_paths_of_tensorflow_estimator() -> None:
    assert program_runner.run_program("original_paths.py") == "all names are there\n"
