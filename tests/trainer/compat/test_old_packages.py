"""Programs that are from the years of TensorFlow 1, or that use installed packages from then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# A package that uses names that only TensorFlow 1 has.
OLD = """
import tensorflow as tf
from tensorflow.contrib import slim


def count_ones():
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf.reduce_sum(tf.ones([2, 3]), keep_dims=True))
"""
# A package that needs TensorFlow 1 only for an argument, keep_dims. The user must name it.
NAMED = """
import tensorflow as tf


def count_ones():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(tf.reduce_sum(tf.ones([2, 3]), keep_dims=True))
"""
PROGRAM = """
import inspect
import numpy as np
import tensorflow.compat.v2 as tf
from absl import app
import named_library
import old_library


def main(unused):
    tf.compat.v1.logging.set_verbosity("ERROR")
    print(named_library.count_ones(), old_library.count_ones())
    print(inspect.getargspec(main).args, np.object is object, np.product([2, 3]), np.bool(1))
    print(tf.compat.v1.estimator.tpu.TPUEstimator.__name__, hasattr(tf, "Session"))
    tf.compat.v1.logging.set_verbosity("INFO")
    tf.compat.v1.logging.info("written once")


if __name__ == "__main__":
    app.run(main)
"""


def run_program(program: Path, packages: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if "CPP_MIN" not in name}
    paths = [str(Path(__file__).parents[3]), str(packages)]
    return subprocess.run(
        [sys.executable, "-m", "tpuserve", "run", *options, str(program)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_old_packages_and_lines_run_and_the_log_is_short(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "old_library.py").write_text(OLD)
    (packages / "named_library.py").write_text(NAMED)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = run_program(program, packages, "--as_tf1", "named_library")
    assert process.stdout.splitlines() == [
        "[[6.]] [[6.]]",
        "['unused'] True 6 True",
        "TPUEstimator False",
    ]
    # TensorFlow's C++ code has written nothing, and the program's own log line is there only once.
    assert process.stderr.splitlines() == [
        "tpuserve: the package named_library gets TensorFlow 1's names: --as_tf1 named_library is "
        "set",
        "tpuserve: the package old_library gets TensorFlow 1's names: old_library.py:3 names "
        "tensorflow.contrib.slim, which only TensorFlow 1 has (--no-tf1 turns that off)",
        "INFO:tensorflow:written once",
    ]
    assert process.returncode == 0


UNSUPPORTED = """
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1.estimator import tpu


def model_fn(features, labels, mode, params):
    w = tf.get_variable("w", initializer=1.0)
    y = tf.strings.to_number(tf.strings.as_string(w * features, name="spelled"))
    train_op = tf.train.get_global_step().assign_add(1)
    return tpu.TPUEstimatorSpec(mode, loss=tf.reduce_sum(y), train_op=train_op)


def input_fn(params):
    return tf.data.Dataset.from_tensors(tf.ones([1])).repeat().batch(2, drop_remainder=True)


tpu.TPUEstimator(model_fn, config=tpu.RunConfig(), train_batch_size=2).train(input_fn, max_steps=2)
"""


def test_the_text_for_an_unsupported_op_stands_alone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(UNSUPPORTED)
    process = run_program(program, tmp_path, "--emulate-tpu", "1")
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    last = process.stderr.splitlines()[-1]
    assert last.startswith("tpuserve: The computation of a TPU core has ops that XLA cannot compil")
    assert f"AsString (spelled, created at {program}:8" in last
    assert "outside_compilation" in last
    assert last.endswith("`tpuserve --debug run` shows the traceback.")
