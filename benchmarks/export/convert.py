"""Measures the time and memory of `tpuserve.export.convert` by model size, against copying.

$ python -m benchmarks.export.convert --gigabytes 0.1 0.5 2
writes for each size a model with that many bytes of variables, copies its directory, and converts
it in a process of its own. The table has the medians of the seconds of the copy and of the
conversion, without the import of TensorFlow, the same of processor time, and the largest resident
memory of the process before and after the conversion. With --verify the process also compares both
metagraphs, which loads the variables.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_WIDTH = 2048
_LAYER_BYTES = 4 * _WIDTH * _WIDTH
_ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}


def main() -> None:
    """Print one row for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.1, 0.5, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--directory", type=Path, help="where to write; on the disk to measure")
    parser.add_argument("--step", choices=("write", "convert"), help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step == "write":
        write_model(arguments.model, arguments.gigabytes[0])
    elif arguments.step == "convert":
        print(json.dumps(convert(arguments.model, verifies=arguments.verify)))
    else:
        print(
            "variables  copy s  convert s  ratio  copy cpu s  convert cpu s  peak MB  before MB  "
            "grown/variables"
        )
        for gigabytes in arguments.gigabytes:
            with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
                print(measure(Path(directory), gigabytes, arguments), flush=True)


def measure(directory: Path, gigabytes: float, arguments: Any) -> str:
    """Write a model, and copy and convert it alternately; return the row of the table."""
    model = directory / "model"
    _run_step("write", model, "--gigabytes", str(gigabytes))
    size = sum(path.stat().st_size for path in (model / "variables").iterdir())
    copies, copy_cpu, results = [], [], []
    for _ in range(arguments.rounds):
        start, cpu_start = time.perf_counter(), time.process_time()
        shutil.copytree(model, directory / "copy")
        copies.append(time.perf_counter() - start)
        copy_cpu.append(time.process_time() - cpu_start)
        shutil.rmtree(directory / "copy")
        options = ["--verify"] if arguments.verify else []
        results.append(json.loads(_run_step("convert", model, *options).splitlines()[-1]))
    copy = statistics.median(copies)
    seconds, cpu_seconds, peak, before = (
        statistics.median(result[name] for result in results)
        for name in ("seconds", "cpu_seconds", "peak", "before")
    )
    return (
        f"{size / 2**20:6.0f} MB  {copy:6.2f}  {seconds:9.2f}  {seconds / copy:5.1f}  "
        f"{statistics.median(copy_cpu):10.2f}  {cpu_seconds:13.2f}  "
        f"{peak / 2**20:7.0f}  {before / 2**20:9.0f}  {(peak - before) / size:15.2f}"
    )


def write_model(directory: Path, gigabytes: float) -> None:
    """Save a model of dense layers whose variables have this size."""
    import tensorflow as tf

    class Dense(tf.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            count = max(1, round(gigabytes * 2**30 / _LAYER_BYTES))
            self.kernels = [
                tf.Variable(tf.random.stateless_normal([_WIDTH, _WIDTH], (1, number)) * 0.02)
                for number in range(count)
            ]

        def compute(self, x: Any) -> Any:
            for kernel in self.kernels:
                x = tf.tanh(x @ kernel)
            return {"y": x}

    model = Dense()
    serve = tf.function(model.compute, [tf.TensorSpec([None, _WIDTH], tf.float32, "x")])
    tf.saved_model.save(model, str(directory), {"serving_default": serve})


def convert(directory: Path, *, verifies: bool) -> dict[str, float]:
    """Convert a model; return the seconds, and the largest memory use before and after in bytes.

    The result is the directory "converted" beside that of the model.
    """
    from tpuserve.runtime import tf_logging

    tf_logging.import_tensorflow()
    import tpuserve.export
    from tpuserve.lowering.rules import xla_kernels
    from tpuserve.verification import verify

    # Compile once before the measurement, because the first compilation registers XLA's kernels.
    xla_kernels.has_xla_kernel(_any_node())
    before = _most_bytes()
    out = directory.with_name("converted")
    start, cpu_start = time.perf_counter(), time.process_time()
    tpuserve.export.convert(directory, out)
    if verifies:
        assert verify(out, runs=0, batch_sizes=[1]).passed
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    shutil.rmtree(out)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "before": before,
        "peak": _most_bytes(),
    }


def _any_node() -> Any:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    return NodeDef(op="NoOp")


def _most_bytes() -> int:
    """Return the most memory that this process has held so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _run_step(step: str, model: Path, *options: str) -> str:
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--step", step]
    return subprocess.run(
        [*command, "--model", str(model), *options],
        env=_ENVIRONMENT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


if __name__ == "__main__":
    main()
