"""Memory of a process that loads and unloads a large model again and again.

    python -m benchmarks.serve.memory [--megabytes 200] [--cycles 20]

Prints the resident memory after each cycle, and last its ratio to that after the first.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from server import memory
from server.manager import Manager
from server.saved_models import SavedModels
from server.settings import Settings

v1 = tf.compat.v1

# Variables of a model, so that it is not one block of memory.
_PARTS = 10
_MODEL = "large"


def main() -> None:
    """Measures with the sizes of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--cycles", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        directory = write(Path(base) / _MODEL / "1", arguments.megabytes)
        sizes = measure(directory, arguments.cycles)
    for cycle, size in enumerate(sizes, 1):
        print(f"cycle {cycle:3}: {size:8.1f} MB")
    print(f"after the last / after the first: {sizes[-1] / sizes[0]:.3f}")


def write(directory: Path, megabytes: int) -> Path:
    """Exports a model with so many variables' bytes; y = x + the sum of their first numbers."""
    numbers = megabytes * (1 << 20) // 4 // _PARTS
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        y: Any = x
        feeds = {}
        for part in range(_PARTS):
            value = v1.placeholder(tf.float32, [numbers])
            variable = v1.get_variable(f"v{part}", initializer=value, validate_shape=False)
            variable.set_shape([numbers])
            feeds[value] = np.full([numbers], part, np.float32)
            y = y + variable[0]
        session.run(v1.global_variables_initializer(), feeds)
        v1.saved_model.simple_save(session, str(directory), {"x": x}, {"y": y})
    return directory


def measure(directory: Path, cycles: int) -> list[float]:
    """Resident megabytes after each load, request and unload of a version."""
    settings = Settings(directory.parent)
    manager = Manager(SavedModels(settings), after_unload=memory.give_back)
    sizes = []
    for _ in range(cycles):
        manager.aspire(_MODEL, {1: directory})
        with manager.use(_MODEL) as servable:
            servable.runner.run("serving_default", {"x": np.zeros([1], np.float32)})
        manager.aspire(_MODEL, {})
        memory.give_back()
        sizes.append(_resident_megabytes())
    return sizes


def _resident_megabytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status tells no VmRSS")


if __name__ == "__main__":
    main()
