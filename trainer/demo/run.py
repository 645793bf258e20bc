"""The five steps of the demo, as they are shown."""

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
from tpuserve.errors import InvalidSetting
from tpuserve.saved_model import metagraph
from trainer.demo import comparison, digits, mnist, serving
from trainer.demo.comparison import DemoFailed
from trainer.demo.digits import Digits
from trainer.demo.serving import Answers

MODEL_NAME = "digits"
ASKED_DIGITS = 10
LEAST_ACCURACY = 0.95


def demo(*, keep: bool, directory: Path | None, steps: int) -> None:
    """Runs the demo; what it makes is removed at the end, but for `keep` or a given directory.

    Args:
      keep: leave everything on disk, and print how to serve and ask the model.
      directory: where to work; None for a new temporary directory.
      steps: how long to train.

    Raises:
      DemoFailed: the model is worse than it should be, or two answers differ.
      InvalidSetting: the directory is not empty.
    """
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise InvalidSetting(f"--directory={directory} is not empty. Name a new or an empty one.")
    work = directory or Path(tempfile.mkdtemp(prefix="tpuserve-demo-"))
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSetting(
            f"--directory={directory} cannot be made: {error.strerror}. Name another."
        ) from error
    _quiet_tensorflow()
    try:
        _Demo(work.absolute(), steps).run(keep)
    finally:
        if not keep and directory is None:
            shutil.rmtree(work, ignore_errors=True)


class _Demo:
    def __init__(self, work: Path, steps: int) -> None:
        self._work = work
        self._steps = steps
        self._console = Console()
        self._summary: list[tuple[str, str, float]] = []

    def run(self, keep: bool) -> None:
        training_file, test_file = self._work / "train.tfrecord", self._work / "test.tfrecord"
        with self._step("1/5 data") as done:
            # Asked for now, and not after the training, in case it is missing.
            serving.import_httpx()
            training_digits, test_digits = digits.load_digits()
            digits.write_tfrecord(training_digits, training_file)
            digits.write_tfrecord(test_digits, test_file)
            done(
                f"{len(training_digits.labels)} training and {len(test_digits.labels)} test digits"
            )
        with self._step("2/5 train") as done:
            estimator = mnist.make_estimator(str(self._work / "checkpoints"))
            estimator.train(mnist.make_input_fn(str(training_file), True), max_steps=self._steps)
            done(f"{self._steps} steps; checkpoints and summaries written")
        with self._step("3/5 evaluate") as done:
            accuracy = estimator.evaluate(mnist.make_input_fn(str(test_file), False))["accuracy"]
            done(f"accuracy {accuracy:.3f} on {len(test_digits.labels)} digits never trained on")
        with self._step("4/5 export") as done:
            base_path = self._work / "models" / MODEL_NAME
            version = estimator.export_saved_model(str(base_path), mnist.serving_input_receiver_fn)
            done(_exported(version.decode()))
        asked = Digits(test_digits.images[:ASKED_DIGITS], test_digits.labels[:ASKED_DIGITS])
        with self._step("5/5 serve") as done:
            answers = _ask(base_path, _as_features(asked.images))
            self._console.print(comparison.make_table(asked, answers, self._console))
            difference = comparison.largest_difference(answers)
            count = ASKED_DIGITS * len(answers)
            done(f"all {count} answers agree; probabilities to {difference:.1e}")
        if keep:
            self._print_curl(base_path, asked)
        else:
            self._say("With --keep the model stays, and you are told how to serve and ask it.")
        self._print_summary()
        if accuracy < LEAST_ACCURACY:
            raise DemoFailed(
                f"accuracy is {accuracy:.3f} after {self._steps} steps, and should be at least "
                f"{LEAST_ACCURACY}. Train for more --steps."
            )

    @contextmanager
    def _step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Shows a step, which says its result to what is yielded, and takes its time."""
        self._console.print(Text(name, style="bold"))
        start = time.monotonic()
        results: list[str] = []
        yield results.append
        (result,) = results
        self._summary.append((name, result, time.monotonic() - start))
        self._say(f"    {result}")

    def _print_curl(self, base_path: Path, asked: Digits) -> None:
        request = self._work / "request.json"
        request.write_text(json.dumps({"instances": _as_features(asked.images[:1]).tolist()}))
        command = shutil.which("tpuserve") or str(Path(sys.executable).with_name("tpuserve"))
        serve = [command, "serve", f"--model_name={MODEL_NAME}", f"--model_base_path={base_path}"]
        url = f"http://localhost:8501/v1/models/{MODEL_NAME}:predict"
        curl = ["curl", "-s", "-d", f"@{request}", url]
        self._say(f"Kept in {self._work}. Serve the model, and ask for a {asked.labels[0]}:")
        for line in (serve, curl):
            self._say(f"    {shlex.join(line)}")

    def _say(self, line: str) -> None:
        # Whole, so that a path or a command can be copied.
        self._console.print(Text(line), soft_wrap=True)

    def _print_summary(self) -> None:
        table = Table("step", "result", "seconds", box=box.SIMPLE_HEAD)
        table.columns[2].justify = "right"
        for name, result, seconds in self._summary:
            table.add_row(name, Text(result), f"{seconds:.1f}")
        table.add_section()
        total = sum(seconds for _, _, seconds in self._summary)
        table.add_row("whole way", "trained, exported, served and compared", f"{total:.1f}")
        self._console.print(table)


def _ask(base_path: Path, images: np.ndarray[Any, Any]) -> dict[str, Answers]:
    answers: dict[str, Answers] = {}
    for device, tag_set in (("CPU", tags.SERVE), ("TPU", tags.SERVE_TPU)):
        with serving.running_server(MODEL_NAME, base_path, tag_set) as server:
            answers[f"{device} REST"] = server.ask_rest(images)
            answers[f"{device} gRPC"] = server.ask_grpc(images)
    return answers


def _quiet_tensorflow() -> None:
    # The demo is for people: of TensorFlow's own log they get the trainer's lines alone.
    warnings.filterwarnings("ignore", message=".*is deprecated and will be removed")
    tf.get_logger().setLevel(logging.ERROR)
    logging.getLogger("tensorflow.trainer").setLevel(logging.INFO)


def _exported(version: str) -> str:
    found = metagraph.read_saved_model(version)
    tag_sets = " and ".join(tags.format_tags(each.tags) for each in found.metagraphs)
    size = (found.graph_bytes + found.variables_bytes) / 1e6
    return f"metagraphs {tag_sets}, {size:.1f} MB with one set of variables"


def _as_features(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return images.astype(np.float32) / np.float32(255) - np.float32(0.5)
