"""Runs the five steps of the demo and prints their results."""

import json
import logging
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve import tags
from tpuserve.errors import InvalidSetting, TpuserveError
from tpuserve.saved_model import metagraph
from trainer.demo import comparison, digits, mnist, serving
from trainer.demo.digits import Digits
from trainer.demo.serving import Predictions

MODEL_NAME = "digits"
NUM_SERVED_DIGITS = 10
MIN_ACCURACY = 0.95


def run_demo(*, keep: bool, directory: Path | None, steps: int) -> None:
    """Run the demo in a directory, and remove the directory unless the user wants to keep it.

    Args:
      keep: whether to keep the files in a temporary directory, and to print how to serve and query
        the model.
      directory: the working directory, whose files are always kept; None creates a temporary
        directory.
    """
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise InvalidSetting(
            f"--directory={directory} is not empty. Name a new or an empty directory."
        )
    work = directory or Path(tempfile.mkdtemp(prefix="tpuserve-demo-"))
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSetting(
            f"--directory={directory} cannot be created: {error.strerror}. Name another directory."
        ) from error
    _silence_tensorflow()
    try:
        keep = keep or directory is not None
        _Demo(work.absolute(), steps).run(keep)
    finally:
        if not keep:
            shutil.rmtree(work, ignore_errors=True)


class _Demo:
    """Runs the steps of the demo in a directory, and stores their results for the summary."""

    def __init__(self, work: Path, steps: int) -> None:
        self._work = work
        self._steps = steps
        self._console = Console()
        # The summary of the demo: (name, result, duration in seconds) of each finished step.
        self._summary: list[tuple[str, str, float]] = []

    def run(self, keep: bool) -> None:
        """Train, evaluate, export, serve and query the model, and print a summary."""
        training_file, test_file = self._work / "train.tfrecord", self._work / "test.tfrecord"
        test_digits = self._prepare_data(training_file, test_file)
        with self._step("2/5 train") as report:
            estimator = mnist.make_estimator(str(self._work / "checkpoints"))
            estimator.train(mnist.make_input_fn(str(training_file), True), max_steps=self._steps)
            report(f"{self._steps} steps; checkpoints and summaries written")
        with self._step("3/5 evaluate") as report:
            accuracy = estimator.evaluate(mnist.make_input_fn(str(test_file), False))["accuracy"]
            report(f"accuracy {accuracy:.3f} on {len(test_digits.labels)} digits never trained on")
        with self._step("4/5 export") as report:
            base_path = self._work / "models" / MODEL_NAME
            version = estimator.export_saved_model(str(base_path), mnist.serving_input_receiver_fn)
            report(_describe_export(version.decode()))
        served_digits = Digits(
            test_digits.images[:NUM_SERVED_DIGITS], test_digits.labels[:NUM_SERVED_DIGITS]
        )
        self._serve(base_path, served_digits)
        if keep:
            self._print_curl(base_path, served_digits)
        else:
            self._print_line("Use --keep to keep the model, and to see how to serve and query it.")
        self._print_summary()
        if accuracy < MIN_ACCURACY:
            raise TpuserveError(
                f"accuracy is {accuracy:.3f} after {self._steps} steps, and should be at least "
                f"{MIN_ACCURACY}. Train for more --steps."
            )

    def _prepare_data(self, training_file: Path, test_file: Path) -> Digits:
        with self._step("1/5 data") as report:
            # Import httpx already in the first step, although only the last step uses it, so that
            # a missing package is reported before training.
            serving.import_httpx()
            training_digits, test_digits = digits.load_digits()
            digits.write_tfrecord(training_digits, training_file)
            digits.write_tfrecord(test_digits, test_file)
            report(
                f"{len(training_digits.labels)} training and {len(test_digits.labels)} test digits"
            )
        return test_digits

    def _serve(self, base_path: Path, served_digits: Digits) -> None:
        """Serve the CPU and the TPU metagraph, and compare their predictions for the digits."""
        with self._step("5/5 serve") as report:
            predictions = _query_servers(base_path, _to_features(served_digits.images))
            table = comparison.make_table(served_digits, predictions, self._console)
            self._console.print(table)
            difference = comparison.largest_difference(predictions)
            count = NUM_SERVED_DIGITS * len(predictions)
            report(f"all {count} answers agree; probabilities to {difference:.1e}")

    @contextmanager
    def _step(self, name: str) -> Iterator[Callable[[str], None]]:
        self._console.print(Text(name, style="bold"))
        start = time.monotonic()
        results: list[str] = []
        yield results.append
        (result,) = results
        self._summary.append((name, result, time.monotonic() - start))
        self._print_line(f"    {result}")

    def _print_curl(self, base_path: Path, served_digits: Digits) -> None:
        """Write a file with a REST request; print the commands that serve and query the model."""
        request = self._work / "request.json"
        request.write_text(
            json.dumps({"instances": _to_features(served_digits.images[:1]).tolist()})
        )
        command = shutil.which("tpuserve") or str(Path(sys.executable).with_name("tpuserve"))
        serve = [command, "serve", f"--model_name={MODEL_NAME}", f"--model_base_path={base_path}"]
        url = f"http://localhost:8501/v1/models/{MODEL_NAME}:predict"
        curl = ["curl", "-s", "-d", f"@{request}", url]
        self._print_line(
            f"Kept in {self._work}. Serve the model, and query it with a {served_digits.labels[0]}:"
        )
        for line in (serve, curl):
            self._print_line(f"    {shlex.join(line)}")

    def _print_line(self, line: str) -> None:
        """Print a line without wrapping, so that paths and commands can be copied."""
        self._console.print(Text(line), soft_wrap=True)

    def _print_summary(self) -> None:
        """Print a table of the demo's steps, their results and their durations."""
        table = Table("step", "result", "seconds", box=box.SIMPLE_HEAD)
        table.columns[2].justify = "right"
        for name, result, seconds in self._summary:
            table.add_row(name, Text(result), f"{seconds:.1f}")
        table.add_section()
        total = sum(seconds for _, _, seconds in self._summary)
        table.add_row("whole way", "trained, exported, served and compared", f"{total:.1f}")
        self._console.print(table)


def _query_servers(base_path: Path, images: np.ndarray[Any, Any]) -> dict[str, Predictions]:
    """Serve the CPU and the TPU metagraph in turn, and query each over REST and gRPC."""
    predictions: dict[str, Predictions] = {}
    for device, tag_set in (("CPU", tags.SERVE), ("TPU", tags.SERVE_TPU)):
        with serving.running_server(MODEL_NAME, base_path, tag_set) as server:
            predictions[f"{device} REST"] = server.predict_rest(images)
            predictions[f"{device} gRPC"] = server.predict_grpc(images)
    return predictions


def _silence_tensorflow() -> None:
    """Hide TensorFlow's log lines, but show the log lines of the package `trainer`."""
    warnings.filterwarnings("ignore", message=".*is deprecated and will be removed")
    tf.get_logger().setLevel(logging.ERROR)
    logging.getLogger("tensorflow.trainer").setLevel(logging.INFO)


def _describe_export(version: str) -> str:
    saved_model = metagraph.read_saved_model(version)
    tag_sets = " and ".join(tags.format_tags(graph.tags) for graph in saved_model.metagraphs)
    size = (saved_model.graph_bytes + saved_model.variables_bytes) / 1e6
    return f"metagraphs {tag_sets}, {size:.1f} MB with one set of variables"


def _to_features(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scale images, uint8 [n, 784], to the model's input, float32 [n, 784] from -0.5 to 0.5."""
    return images.astype(np.float32) / np.float32(255) - np.float32(0.5)
