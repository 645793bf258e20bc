import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.preloaded.process import run_preloaded
from tests.trainer.compat import program_runner

pytestmark = pytest.mark.slow


def test_error_without_a_tpu_says_what_to_do() -> None:
    script = str(program_runner.PROGRAMS / "own_session" / "axy.py")
    process = run_preloaded(["-m", "tpuserve.run", script], env={**os.environ, "TPU_NAME": "local"})
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1] == (
        "tpuserve: the program runs TPUReplicatedInput, which only a TPU can run; no TPU found. "
        "Emulate a TPU: tpuserve run --emulate-tpu 8 SCRIPT."
    )


@pytest.mark.numeric
def test_training_loops_on_all_cores_train_as_one_machine_does(tmp_path: Path) -> None:
    output = program_runner.run_program(
        "own_session/train_loop.py", f"--model_dir={tmp_path}", cores=8
    )
    x = np.arange(32).reshape(16, 2) / 16
    y = x @ [1.0, 2.0] + 0.5
    x = np.hstack([x, np.ones([16, 1])])
    weights, momentum, losses = np.zeros(3), np.zeros(3), []
    for _ in range(20):
        error = x @ weights - y
        losses.append(np.mean(error**2))
        momentum[:] = 0.9 * momentum + 2 * x.T @ error / 16
        weights -= 0.1 * momentum
    np.testing.assert_allclose([*map(float, output.split())], losses, rtol=1e-3, atol=1e-4)
    reader = tf.train.load_checkpoint(str(tmp_path))
    np.testing.assert_allclose(reader.get_tensor("line/w")[:, 0], weights[:2], rtol=1e-4)
    np.testing.assert_allclose(reader.get_tensor("line/b"), weights[2:], rtol=1e-4)
    assert reader.get_tensor("global_step") == 20
