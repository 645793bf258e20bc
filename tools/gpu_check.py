"""Trains and serves on an NVIDIA GPU, with TensorFlow and through PJRT, and prints ten lines.

    make test-gpu
    python -m tools.gpu_check [--platform cpu] [--steps 1200] [--serving_seconds 5] [--minutes 8]

TensorFlow trains the CNN of examples/mnist.py off the TPU and serves {serve}; jax's PJRT client
trains examples/train.py and the same CNN with use_tpu=True and serves {serve, tpu}. A line has the
result of each step, its failure, or that there was no time left. With the platform cpu, the same
steps run without a GPU, so that the script itself can be tested.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
_NO_GPU = "no NVIDIA GPU: nvidia-smi finds none, so nothing was run"
_FOUND, _NOT_FOUND = 0, 3
_PACKAGES = ("tensorflow", "jax", "jax-cuda12-plugin", "nvidia-cudnn-cu12", "nvidia-nccl-cu12")
_COUNT_GPUS = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
_ROWS = 64
_RATE = re.compile(r"global_step/sec: ([\d.]+)")


def find_gpus() -> list[str]:
    """Return a line for each NVIDIA GPU of this machine: its name, driver and memory."""
    try:
        found = subprocess.run(_QUERY, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return found.stdout.strip().splitlines()


class Check:
    """Runs the steps one after the other, until the time is over, and prints a line for each.

    Args:
      platform: the platform of the PJRT devices, "cuda" or "cpu".
      steps: the number of training steps of the CNN.
      serving_seconds: how long each server is asked, in seconds.
      seconds: the time for everything, in seconds.
    """

    def __init__(
        self, directory: Path, platform: str, steps: int, serving_seconds: float, seconds: float
    ) -> None:
        self._directory = directory
        self._platform = platform
        self._steps = steps
        self._serving_seconds = serving_seconds
        self._start = time.monotonic()
        self._seconds = seconds
        self._pjrt = {"TPUSERVE_TPU_RUNTIME": "pjrt", "TPUSERVE_PJRT_PLATFORM": platform}
        # Figure, such as "TensorFlow steps/s" → its value.
        self._figures: dict[str, float] = {}
        self.num_failed = 0

    def run(self) -> None:
        """Run all steps."""
        self._report("packages", self._describe_packages)
        self._report("data", self._write_data)
        self._report("TensorFlow trains", lambda: self._train("TensorFlow", {}))
        self._report("TensorFlow serves", lambda: self._serve("TensorFlow", {}))
        self._report("PJRT trains a line", self._train_line)
        self._report("PJRT trains", lambda: self._train("PJRT", self._pjrt))
        self._report("PJRT serves", lambda: self._serve("PJRT", self._pjrt))
        self._report("verify", self._verify)
        self._report("PJRT/TensorFlow", self._compare)

    def _report(self, name: str, step: Callable[[], str]) -> None:
        try:
            result = step()
        except Exception as error:
            self.num_failed += 1
            result = f"FAILED: {error}"
        print(f"{name:<18} {result}", flush=True)

    def _remaining_seconds(self) -> float:
        remaining = self._start + self._seconds - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("no time was left")
        return remaining

    def _run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        """Run a Python program, and return what it prints; raise an error with its last line."""
        ended = subprocess.run(
            [sys.executable, *arguments],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self._remaining_seconds(),
        )
        if ended.returncode:
            last = (ended.stdout.strip().splitlines() or ["(nothing)"])[-1]
            raise RuntimeError(f"status {ended.returncode}: {last}")
        return ended.stdout

    def _describe_packages(self) -> str:
        versions = [f"{name} {_version_of(name)}" for name in _PACKAGES]
        count = self._run(["-c", _COUNT_GPUS], {}).strip().splitlines()[-1]
        if self._platform == "cuda" and count == "0":
            raise RuntimeError(f"TensorFlow sees no GPU ({', '.join(versions)})")
        return f"{', '.join(versions)}; TensorFlow sees {count} GPUs"

    def _write_data(self) -> str:
        from tpuserve.runtime import tf_logging
        from trainer.demo.digits import load_digits, write_tfrecord

        tf_logging.import_tensorflow()
        training, self._test = load_digits()
        write_tfrecord(training, self._directory / "train.tfrecord")
        write_tfrecord(self._test, self._directory / "test.tfrecord")
        return f"{len(training.labels)} digits to train, {len(self._test.labels)} to test"

    def _train(self, runtime: str, environment: Mapping[str, str]) -> str:
        use_tpu = ["--use_tpu"] if environment else []
        directories = [
            f"--data_dir={self._directory}",
            f"--model_dir={self._directory / runtime}",
            f"--export_dir={self._directory / runtime / 'export'}",
        ]
        arguments = ["examples/mnist.py", *directories, f"--steps={self._steps}", *use_tpu]
        printed = self._run(arguments, environment)
        rates = [float(rate) for rate in _RATE.findall(printed)]
        accuracy = re.findall(r"'accuracy': (?:np.float\d+\()?([\d.]+)", printed)[-1]
        # The first rates contain compilations.
        self._figures[f"{runtime} steps/s"] = rate = max(rates, default=float("nan"))
        return f"the CNN in {self._steps} steps, {rate:.0f} steps/s, accuracy {float(accuracy):.3f}"

    def _train_line(self) -> str:
        arguments = ["examples/train.py", f"{self._directory}/line", "--max_steps=60", "--use_tpu"]
        printed = self._run(arguments, self._pjrt).strip().splitlines()[-1]
        if printed != "step 60: y = 2.00 x + 1.00":
            raise RuntimeError(f"the program found {printed!r}, not y = 2.00 x + 1.00")
        return printed

    def _serve(self, runtime: str, environment: Mapping[str, str]) -> str:
        import tpuserve

        seconds = self._remaining_seconds()
        tags = "serve,tpu" if environment else "serve"
        images = self._test.images.astype("float32") / 255 - 0.5
        models = {"digits": self._directory / runtime / "export"}
        with tpuserve.serve(
            models, timeout_s=seconds, environment=environment, saved_model_tags=tags
        ) as server:
            client = server.client("grpc")

            def predict(rows: Any) -> Any:
                outputs = client.predict("digits", {"image": rows})
                return outputs["class"]

            right = int((predict(images[:_ROWS]) == self._test.labels[:_ROWS]).sum())
            start, num_rows = time.monotonic(), 0
            while time.monotonic() - start < self._serving_seconds:
                predict(images[:_ROWS])
                num_rows += _ROWS
            rate = num_rows / (time.monotonic() - start)
            (chosen,) = re.findall(r"digits/\d+: (\{.*)", server.log)
        self._figures[f"{runtime} rows/s"] = rate
        return f"{chosen}: {right} of {_ROWS} digits right, {rate:.0f} rows/s"

    def _verify(self) -> str:
        # Without TF32, whose products have 10 bits: a GPU computes like a CPU.
        environment = {**self._pjrt, "NVIDIA_TF32_OVERRIDE": "0"}
        export = str(self._directory / "PJRT" / "export")
        printed = self._run(["-m", "tpuserve", "verify", export], environment)
        return printed.strip().splitlines()[-1]

    def _compare(self) -> str:
        steps, rows = (
            self._figures[f"PJRT {unit}"] / self._figures[f"TensorFlow {unit}"]
            for unit in ("steps/s", "rows/s")
        )
        seconds = time.monotonic() - self._start
        return f"{steps:.2f} of the steps/s, {rows:.2f} of the rows/s; {seconds:.0f} s in all"


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def main() -> None:
    """Run the steps, and exit with status 1 if one has failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--find", action="store_true", help="exit with status 3 without a GPU")
    parser.add_argument("--platform", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--serving_seconds", type=float, default=5)
    parser.add_argument("--minutes", type=float, default=8)
    arguments = parser.parse_args()
    gpus = find_gpus()
    if arguments.platform == "cuda" and not gpus:
        print(_NO_GPU)
        sys.exit(_NOT_FOUND if arguments.find else 0)
    if arguments.find:
        sys.exit(_FOUND)
    print(f"{'GPU':<18} {'; '.join(gpus) or 'none'}", flush=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as directory:
        check = Check(
            Path(directory),
            arguments.platform,
            arguments.steps,
            arguments.serving_seconds,
            60 * arguments.minutes,
        )
        check.run()
    sys.exit(1 if check.num_failed else 0)


if __name__ == "__main__":
    main()
