"""The package tf_slim, which is written for the TensorFlow of 2019, works in a program."""

from pathlib import Path

import pytest

from tests.trainer.compat import program_runner

pytestmark = pytest.mark.slow


def test_all_parts_of_tf_slim_work(tmp_path: Path) -> None:
    output = program_runner.run_program("slim_package.py", tmp_path).splitlines()
    assert output == [
        # ((0-4)² + (3-0)²) / 2; (3² + (6-5)²) / 2; max(0, 1 + 9 - 16) and max(0, 1 + 9 - 25).
        "compute_losses [12.5, 5.0, 0.0]",
        "compute_metrics [[1.0, 2.0, 3.0], 2.0, 1.0, 1.0]",
        "read_with_queues [[0, 1], [2, 3]]",
        "train_a_net 2",
        "alexnet_v2 [1, 5]",
        "inception_v1 [1, 5]",
        "inception_v2 [1, 5]",
        "inception_v3 [1, 5]",
        "overfeat [1, 5]",
        "resnet_v1_50 [1, 1, 1, 5]",
        "resnet_v2_50 [1, 1, 1, 5]",
        "vgg_16 [1, 5]",
    ]
