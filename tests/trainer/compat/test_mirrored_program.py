from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.compat import program_runner
from tests.trainer.hosts import host_processes

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

DEVICES: dict[str, dict[str, Any]] = {
    "emulated": {"cores": 2},
    "pjrt": {"environment": host_processes.environment(cores=2)},
}


def variables(checkpoint: Path) -> dict[str, Any]:
    names = (name for name, _ in tf.train.list_variables(str(checkpoint)))
    return {name: tf.train.load_variable(str(checkpoint), name) for name in names}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the variables after 8 steps of TensorFlow's own MirroredStrategy."""
    directory = tmp_path_factory.mktemp("original")
    program_runner.run_program("mirrored/original.py", "--num_gpus=2", f"--model_dir={directory}")
    return variables(directory / "model.ckpt")


@pytest.mark.parametrize("devices", DEVICES.values(), ids=list(DEVICES))
def test_two_replicas_train_the_weights_of_tensorflows_mirrored_strategy(
    devices: dict[str, Any], original: dict[str, Any], tmp_path: Path
) -> None:
    if "environment" in devices:
        pytest.importorskip("jax")
    output = program_runner.run_program(
        "mirrored/mirrored_mnist.py",
        *("--num_gpus=2", "--all_reduce_alg=nccl", f"--model_dir={tmp_path}"),
        **devices,
    )
    assert output == "8 1.000\n"
    trained = variables(tmp_path / "model.ckpt-8")
    assert trained.keys() == original.keys()
    for name, value in original.items():
        np.testing.assert_allclose(trained[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("num_gpus", [0, 1])
def test_strategy_of_one_replica_trains_on_the_cpu(num_gpus: int, tmp_path: Path) -> None:
    output = program_runner.run_program(
        "mirrored/mirrored_mnist.py", f"--num_gpus={num_gpus}", f"--model_dir={tmp_path}"
    )
    assert output == "8 1.000\n"
