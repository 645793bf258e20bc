"""Runs the five steps of the demo and prints their results."""

import json
import logging
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
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
from trainer.demo import digits, mnist, serving
from trainer.demo.digits import Digits
from trainer.demo.serving import Predictions

# The width, in pixels, of the margin at each side of an image. The margin is not drawn.
_MARGIN = 4
# Pixels with a greater value count as ink. Values range from 0 (paper) to 255 (ink).
_INK_THRESHOLD = 96
# The code of a braille character has one bit for each of its dots, which form 4 rows and 2 columns.
# The array has the bits in this arrangement. Source: The Unicode Standard, block Braille Patterns
# (U+2800).
_BRAILLE_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BRAILLE_BLANK = 0x2800


def draw_digit(image: np.ndarray[Any, Any], *, ascii_only: bool = False) -> str:
    """Return the picture of a digit in five lines of ten characters.

    Args:
      image: uint8 [784], 28 rows of 28 pixels. The outer 4 pixels of each side, which are empty
        in MNIST, are not drawn.
    """
    pixels = np.reshape(image, (28, 28))[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN] > _INK_THRESHOLD
    blocks = pixels.reshape(5, 4, 10, 2).transpose(0, 2, 1, 3)
    if ascii_only:
        # Draw each block of 4 x 2 pixels, which would be a braille character, as `#` if at least
        # half of its pixels are ink, and as a space otherwise.
        rows = blocks.sum(axis=(2, 3)) >= 4
        return "\n".join("".join("#" if is_ink else " " for is_ink in row) for row in rows)
    dots = (blocks * _BRAILLE_BITS).sum(axis=(2, 3))
    return "\n".join("".join(chr(_BRAILLE_BLANK + bits) for bits in row) for row in dots)


# The largest accepted difference between the float32 probabilities of the CPU metagraph and of the
# TPU metagraph.
PROBABILITY_TOLERANCE = 1e-5
_DIGITS_PER_ROW = 5


def largest_difference(predictions: Mapping[str, Predictions]) -> float:
    """Compare predictions for the same digits, and return the largest difference.

    Args:
      predictions: name of the device and protocol, such as "CPU REST" → predictions. The first
        predictions are compared with each of the others.

    Returns:
      The largest absolute difference between two probabilities of the same digit and class.
    """
    baseline_name, *candidate_names = predictions
    baseline = predictions[baseline_name]
    largest = 0.0
    for name in candidate_names:
        candidate = predictions[name]
        difference = float(np.abs(candidate.probabilities - baseline.probabilities).max())
        is_same = np.array_equal(candidate.classes, baseline.classes)
        if not is_same or difference > PROBABILITY_TOLERANCE:
            raise TpuserveError(
                f"{name} and {baseline_name} disagree: digits {candidate.classes.tolist()} and "
                f"{baseline.classes.tolist()}, probabilities by up to {difference:.1e}."
            )
        largest = max(largest, difference)
    return largest


def make_table(digits: Digits, predictions: Mapping[str, Predictions], console: Console) -> Table:
    """Make a table of digits, labels and predictions, five digits per row.

    Args:
      predictions: name of the device and protocol, such as "CPU REST" → predictions.
    """
    table = Table(
        box=box.SQUARE,
        show_header=False,
        caption="CPU: metagraph {serve}. TPU: metagraph {serve, tpu}, lowered to this CPU.",
    )
    for _ in range(1 + _DIGITS_PER_ROW):
        table.add_column(justify="center", no_wrap=True)
    ascii_only = console.options.ascii_only
    for first in range(0, len(digits.labels), _DIGITS_PER_ROW):
        row = range(first, min(first + _DIGITS_PER_ROW, len(digits.labels)))
        pictures = [draw_digit(digits.images[i], ascii_only=ascii_only) for i in row]
        table.add_row("", *pictures)
        table.add_row("label", *(str(digits.labels[i]) for i in row), style="bold")
        for name, server_predictions in predictions.items():
            table.add_row(name, *(str(server_predictions.classes[i]) for i in row))
        table.add_section()
    return table


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
            table = make_table(served_digits, predictions, self._console)
            self._console.print(table)
            difference = largest_difference(predictions)
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
