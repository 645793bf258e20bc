from pathlib import Path

import pytest

from tests.trainer.compat import program_runner

pytestmark = pytest.mark.slow


def test_a_program_finds_names_at_the_paths_of_tensorflow_estimator() -> None:
    assert program_runner.run_program("original_paths.py") == "all names are there\n"


def test_a_program_uses_old_parts_of_contrib(tmp_path: Path) -> None:
    lines = program_runner.run_program("old_contrib.py", tmp_path).splitlines()
    assert lines == [
        "[0, 1, 2, 3, 4] [0, 1, 2, 3, 4]",
        "10 ['int64', 'int64']",
        "6 True True",
        "21.5",
        # The second training goes on where the first one has stopped reading.
        "0 1 2 3 4",
        "False",
        "2",
        "tf.contrib.distribute.TPUStrategy: Use TPUEstimator, each core of which runs a replica.",
    ]
