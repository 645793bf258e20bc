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
_VARIANTS = ("returnable", "as it is")


def write(directory: Path) -> None:
    """Exports two convolutions, whose tensors are of the size that allocators differ in."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, *IMAGES[1:]], name="x")
        found = x
        for size in (IMAGES[-1], CHANNELS):
            weights = tf.constant(0.01, tf.float32, [3, 3, size, CHANNELS])
            found = tf.nn.relu(tf.nn.conv2d(found, weights, strides=2, padding="SAME"))
        tf.saved_model.simple_save(
            session, str(directory), {"x": x}, {"y": tf.reduce_mean(found, [1, 2])}
        )


def run(variant: str, directory: Path, runs: int) -> float:
    """Milliseconds of CPU time a run, in this process."""
    if variant == _VARIANTS[0]:
        from server.process import malloc

        malloc.configure_malloc()
    import numpy as np

    from tpuserve.runtime import loader

    model, fed = loader.load(directory), {"x": np.ones(IMAGES, np.float32)}
    for _ in range(runs // 10):
        model.run("serving_default", fed)
    begin = time.process_time()
    for _ in range(runs):
        model.run("serving_default", fed)
    return (time.process_time() - begin) / runs * 1000


def main() -> None:
    """Measures with the sizes of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.variant:
        print(run(arguments.variant, Path(arguments.directory), arguments.runs))
        return
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "1"
        write(directory)
        found: dict[str, list[float]] = {each: [] for each in _VARIANTS}
        for _ in range(arguments.turns):
            for each in _VARIANTS:
                found[each].append(_in_a_process(each, directory, arguments.runs))
    medians = {each: statistics.median(times) for each, times in found.items()}
    for each, median in medians.items():
        print(f"{each:10} {median:.2f} ms of CPU time a run")
    print(f"ratio {medians[_VARIANTS[0]] / medians[_VARIANTS[1]]:.2f}")


def _in_a_process(variant: str, directory: Path, runs: int) -> float:
    command = [sys.executable, "-m", "benchmarks.serve.allocation", f"--variant={variant}"]
    command += [f"--directory={directory}", f"--runs={runs}"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return float(said)


if __name__ == "__main__":
    main()
