"""The cost to requests of the malloc tuning that returns models' memory.

    python -m benchmarks.serve.allocation [--runs 300] [--turns 5]

Measures the CPU time of a run of a small convolutional model on a batch of images, with and without
the server's tuning of malloc (`server.process.malloc.configure_malloc`), in alternating processes.
Prints the medians and their ratio.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMAGES = (8, 224, 224, 3)
CHANNELS = 16
_VARIANTS = ("tuned", "default")


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


def measure_cpu_ms(variant: str, directory: Path, runs: int) -> float:
    """Run the model in this process, and return the milliseconds of CPU time per run.

    Args:
      variant: "tuned" or "default", the configuration of malloc.
      directory: The SavedModel.
      runs: The number of measured runs.
    """
    if variant == _VARIANTS[0]:
        from server.process import malloc

        malloc.configure_malloc()
    import numpy as np

    from tpuserve.runtime import loader

    model, inputs = loader.load(directory), {"x": np.ones(IMAGES, np.float32)}
    for _ in range(runs // 10):
        model.run("serving_default", inputs)
    begin = time.process_time()
    for _ in range(runs):
        model.run("serving_default", inputs)
    return (time.process_time() - begin) / runs * 1000


def main() -> None:
    """Measure both variants in alternating processes, and print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.variant:
        print(measure_cpu_ms(arguments.variant, Path(arguments.directory), arguments.runs))
        return
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "1"
        save_convolutions(directory)
        cpu_ms: dict[str, list[float]] = {variant: [] for variant in _VARIANTS}
        for _ in range(arguments.turns):
            for variant in _VARIANTS:
                cpu_ms[variant].append(_measure_in_subprocess(variant, directory, arguments.runs))
    medians = {variant: statistics.median(times) for variant, times in cpu_ms.items()}
    for variant, median in medians.items():
        print(f"{variant:10} {median:.2f} ms of CPU time per run")
    print(f"ratio {medians[_VARIANTS[0]] / medians[_VARIANTS[1]]:.2f}")


def _measure_in_subprocess(variant: str, directory: Path, runs: int) -> float:
    command = [sys.executable, "-m", "benchmarks.serve.allocation", f"--variant={variant}"]
    command += [f"--directory={directory}", f"--runs={runs}"]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(finished.stdout)


if __name__ == "__main__":
    main()
