"""A program that divides a model over the cores with Mesh TensorFlow."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.compat.program_runner import run_program

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

STEPS, RATE = 20, 0.5


def train_undivided(directory: Path) -> float:
    """Train the program's model y = x v w with NumPy, from its first checkpoint.

    Returns:
      The mean of (y - x)^2 after all steps.
    """
    x = tf.random.stateless_uniform([8, 4], [1, 2]).numpy()
    checkpoint = tf.train.load_checkpoint(str(directory / "model.ckpt-0"))
    v, w = (checkpoint.get_tensor(f"{layer}/kernel") for layer in ("in", "out"))
    for _ in range(STEPS):
        gradient = 2 * (x @ v @ w - x) / x.size
        v, w = v - RATE * x.T @ gradient @ w.T, w - RATE * (x @ v).T @ gradient
    return float(np.mean((x @ v @ w - x) ** 2))


@pytest.mark.parametrize(
    ("cores", "mesh_shape", "layout"),
    [(2, "all:2", "hidden:all"), (4, "rows:2;columns:2", "batch:rows;hidden:columns")],
)
def test_a_model_that_is_divided_over_cores_trains_as_an_undivided_one(
    tmp_path: Path, cores: int, mesh_shape: str, layout: str
) -> None:
    output = run_program(
        "mesh_like.py",
        f"--model_dir={tmp_path}",
        f"--mesh_shape={mesh_shape}",
        f"--layout={layout}",
        cores=cores,
    )
    assert float(output.split("loss ")[-1]) == pytest.approx(train_undivided(tmp_path), rel=1e-4)


def test_the_program_trains_off_the_tpu(tmp_path: Path) -> None:
    output = run_program("mesh_like.py", f"--model_dir={tmp_path}", "--use_tpu=false")
    assert float(output.split("loss ")[-1]) < 0.1
