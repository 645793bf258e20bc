"""The cost to requests of the malloc tuning that returns models' memory.

    python -m benchmarks.serve.lifecycle.allocation [--runs 300] [--turns 5]

Measures the processor time of a run of three models, with and without the server's tuning of malloc
(`server.process.malloc.configure_malloc`), in alternating processes: half_plus_two, a CNN for MNIST
on one image, and two convolutions on a batch of large images. Prints the medians and their ratios.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.serve import models

IMAGES = (8, 224, 224, 3)
CHANNELS = 16
_VARIANTS = ("tuned", "default")
_MODELS = ("half_plus_two", "mnist", "convolutions")
# A run of half_plus_two takes some 30 microseconds, so it is run more often than the others.
_SMALL_FACTOR = 20


def save_convolutions(directory: Path) -> None:
    """Export two convolutions as a SavedModel.

    The activations take megabytes, a size at which allocators behave differently.
    """
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, *IMAGES[1:]], name="x")
        y = x
        for size in (IMAGES[-1], CHANNELS):
            weights = tf.constant(0.01, tf.float32, [3, 3, size, CHANNELS])
            y = tf.nn.relu(tf.nn.conv2d(y, weights, strides=2, padding="SAME"))
        tf.saved_model.simple_save(
            session, str(directory), {"x": x}, {"y": tf.reduce_mean(y, [1, 2])}
        )


def save_model(name: str, directory: Path) -> None:
    """Export the model of `_MODELS` with this name as a SavedModel with the input x."""
    save = {
        "half_plus_two": models.save_half_plus_two,
        "mnist": models.save_mnist_cnn,
        "convolutions": save_convolutions,
    }
    save[name](directory)


def make_input(name: str) -> Any:
    """Return the input x of the model of `_MODELS` with this name: a float32 array."""
    import numpy as np

    if name == "half_plus_two":
        return models.half_plus_two_input()
    return models.mnist_input() if name == "mnist" else np.ones(IMAGES, np.float32)


def measure_cpu_ms(variant: str, name: str, directory: Path, runs: int) -> float:
    """Run a model in this process, and return the milliseconds of processor time per run.

    Args:
      variant: "tuned" or "default", the configuration of malloc.
      name: The name of the model in `_MODELS`.
      directory: The SavedModel.
      runs: The number of measured runs.
    """
    if variant == _VARIANTS[0]:
        from server.process import malloc

        malloc.configure_malloc()
    from tpuserve.runtime import loader

    model, inputs = loader.load(directory), {"x": make_input(name)}
    for _ in range(runs // 10):
        model.run("serving_default", inputs)
    begin = time.process_time()
    for _ in range(runs):
        model.run("serving_default", inputs)
    return (time.process_time() - begin) / runs * 1000


def main() -> None:
    """Measure both variants in alternating processes, and print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--measured", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measured:
        variant, name, directory = arguments.measured
        print(measure_cpu_ms(variant, name, Path(directory), arguments.runs))
        return
    for name in _MODELS:
        runs = arguments.runs * (_SMALL_FACTOR if name == "half_plus_two" else 1)
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary) / "1"
            save_model(name, directory)
            cpu_ms: dict[str, list[float]] = {variant: [] for variant in _VARIANTS}
            for _ in range(arguments.turns):
                for variant in _VARIANTS:
                    cpu_ms[variant].append(_measure_in_subprocess(variant, name, directory, runs))
        tuned, default = (statistics.median(cpu_ms[variant]) for variant in _VARIANTS)
        print(
            f"{name:14} tuned {tuned:.3f} ms, default {default:.3f} ms of processor time per run; "
            f"ratio {tuned / default:.2f}"
        )


def _measure_in_subprocess(variant: str, name: str, directory: Path, runs: int) -> float:
    command = [sys.executable, "-m", "benchmarks.serve.lifecycle.allocation", f"--runs={runs}"]
    command += ["--measured", variant, name, str(directory)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(finished.stdout)


if __name__ == "__main__":
    main()
