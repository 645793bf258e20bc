"""The five steps of the demo, as they are shown."""

import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve import metagraph, quiet, tags
from tpuserve.errors import InvalidSetting, TpuserveError
from trainer.demo import digits, picture, serving
from trainer.demo.digits import Digits
from trainer.demo.serving import Answers

MODEL_NAME = "digits"
ASKED_DIGITS = 10
LEAST_ACCURACY = 0.95
PROBABILITY_TOLERANCE = 1e-5
_DIGITS_A_ROW = 5


class DemoFailed(TpuserveError):
    """The demo ran, and what came out is not what it promises."""


def demo(*, keep: bool, directory: Path | None, steps: int) -> None:
    """Runs the demo; what it makes is removed at the end, but for `keep` or a given directory.

    Args:
      keep: leave everything on disk, and print how to serve and ask the model.
      directory: where to work; None for a new temporary directory.
      steps: how long to train.

    Raises:
      DemoFailed: the model is worse than it should be, or two answers differ.
    """
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise InvalidSetting(f"--directory={directory} is not empty. Name a new or an empty one.")
    work = directory or Path(tempfile.mkdtemp(prefix="tpuserve-demo-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        _Demo(work, steps).run(keep)
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
        with self._step("1/5 data") as done:
            _quiet_tensorflow()
            training_digits, test_digits = digits.load()
            digits.write(training_digits, self._path("train.tfrecord"))
            digits.write(test_digits, self._path("test.tfrecord"))
            done(
                f"{len(training_digits.labels)} training and {len(test_digits.labels)} test digits"
            )
        with self._step("2/5 train") as done:
            estimator = self._estimator()
            estimator.train(self._input_fn("train.tfrecord", True), max_steps=self._steps)
            done(f"{self._steps} steps; checkpoints and summaries written")
        with self._step("3/5 evaluate") as done:
            accuracy = estimator.evaluate(self._input_fn("test.tfrecord", False))["accuracy"]
            done(f"accuracy {accuracy:.3f} on {len(test_digits.labels)} digits never trained on")
        with self._step("4/5 export") as done:
            version = Path(self._export(estimator))
            done(_exported(version))
        asked = Digits(test_digits.images[:ASKED_DIGITS], test_digits.labels[:ASKED_DIGITS])
        with self._step("5/5 serve") as done:
            answers = self._ask(version.parent, _as_features(asked.images))
            self._console.print(_comparison(asked, answers, self._console))
            difference = _largest_difference(answers)
            count = ASKED_DIGITS * len(answers)
            done(f"all {count} answers agree; probabilities to {difference:.1e}")
        if keep:
            self._print_curl(version.parent, asked)
        self._print_summary()
        if accuracy < LEAST_ACCURACY:
            raise DemoFailed(
                f"accuracy is {accuracy:.3f} after {self._steps} steps, and should be at least "
                f"{LEAST_ACCURACY}. Train for more --steps."
            )

    @contextmanager
    def _step(self, name: str) -> Iterator[Any]:
        self._console.print(Text(name, style="bold"))
        start = time.monotonic()
        results: list[str] = []
        yield results.append
        seconds = time.monotonic() - start
        for result in results:
            self._console.print(Text(f"    {result}"), soft_wrap=True)
        self._summary.append((name, results[0], seconds))

    def _path(self, name: str) -> Path:
        return self._work / name

    def _estimator(self) -> Any:
        from trainer.demo import mnist

        return mnist.make_estimator(str(self._path("checkpoints")))

    def _input_fn(self, name: str, training: bool) -> Any:
        from trainer.demo import mnist

        return mnist.make_input_fn(str(self._path(name)), training)

    def _export(self, estimator: Any) -> str:
        from trainer.demo import mnist

        base = str(self._path("models") / MODEL_NAME)
        exported: bytes = estimator.export_saved_model(base, mnist.serving_input_receiver_fn)
        return exported.decode()

    def _ask(self, base_path: Path, images: np.ndarray[Any, Any]) -> dict[str, Answers]:
        answers: dict[str, Answers] = {}
        for device, tag_set in (("CPU", tags.SERVE), ("TPU", tags.SERVE_TPU)):
            with serving.running(MODEL_NAME, base_path, tag_set) as server:
                answers[f"{device} REST"] = server.ask_rest(images)
                answers[f"{device} gRPC"] = server.ask_grpc(images)
        return answers

    def _print_curl(self, base_path: Path, asked: Digits) -> None:
        request = self._path("request.json")
        request.write_text(json.dumps({"instances": _as_features(asked.images[:1]).tolist()}))
        command = shutil.which("tpuserve") or os.path.join(
            os.path.dirname(sys.executable), "tpuserve"
        )
        serve = [command, "serve", f"--model_name={MODEL_NAME}", f"--model_base_path={base_path}"]
        url = f"http://localhost:8501/v1/models/{MODEL_NAME}:predict"
        curl = ["curl", "-s", "-d", f"@{request}", url]
        self._console.print(Text(f"Kept in {self._work}. Serve, and ask for a {asked.labels[0]}:"))
        for line in (serve, curl):
            self._console.print(Text(f"    {shlex.join(line)}"), soft_wrap=True)

    def _print_summary(self) -> None:
        table = Table("step", "result", "seconds", box=box.SIMPLE_HEAD)
        table.columns[2].justify = "right"
        for name, result, seconds in self._summary:
            table.add_row(name, Text(result), f"{seconds:.1f}")
        table.add_section()
        total = sum(seconds for _, _, seconds in self._summary)
        table.add_row("whole way", "trained, exported, served and compared", f"{total:.1f}")
        self._console.print(table)


def _quiet_tensorflow() -> None:
    # The demo is for people: of TensorFlow's own log they get the trainer's lines alone.
    warnings.filterwarnings("ignore", message=".*is deprecated and will be removed")
    quiet.import_tensorflow()
    import tensorflow as tf

    tf.get_logger().setLevel(logging.ERROR)
    trainer_logger = logging.getLogger("tensorflow.trainer")
    trainer_logger.setLevel(logging.INFO)


def _exported(version: Path) -> str:
    found = metagraph.read(version)
    tag_sets = " and ".join(tags.show(each.tags) for each in found.metagraphs)
    size = (found.graph_bytes + found.variables_bytes) / 1e6
    return f"metagraphs {tag_sets}, {size:.1f} MB with one set of variables"


def _as_features(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return images.astype(np.float32) / np.float32(255) - np.float32(0.5)


def _comparison(asked: Digits, answers: Mapping[str, Answers], console: Console) -> Table:
    """Digits, labels and answers side by side."""
    table = Table(
        box=box.SQUARE,
        show_header=False,
        caption="CPU: metagraph {serve}. TPU: metagraph {serve, tpu}, lowered to this CPU.",
    )
    for _ in range(1 + _DIGITS_A_ROW):
        table.add_column(justify="center", no_wrap=True)
    ascii_only = console.options.ascii_only
    for first in range(0, len(asked.labels), _DIGITS_A_ROW):
        shown = range(first, min(first + _DIGITS_A_ROW, len(asked.labels)))
        pictures = (picture.draw(asked.images[each], ascii_only=ascii_only) for each in shown)
        table.add_row("", *pictures)
        table.add_row("label", *(str(asked.labels[each]) for each in shown), style="bold")
        for way, answer in answers.items():
            table.add_row(way, *(str(answer.classes[each]) for each in shown))
        table.add_section()
    return table


def _largest_difference(answers: Mapping[str, Answers]) -> float:
    """The largest difference between two probabilities for one digit.

    Raises:
      DemoFailed: two answers name different digits, or differ by more than the tolerance.
    """
    baseline_way, *candidate_ways = answers
    baseline = answers[baseline_way]
    largest = 0.0
    for way in candidate_ways:
        candidate = answers[way]
        difference = float(np.abs(candidate.probabilities - baseline.probabilities).max())
        same = np.array_equal(candidate.classes, baseline.classes)
        if not same or difference > PROBABILITY_TOLERANCE:
            raise DemoFailed(
                f"{way} and {baseline_way} disagree: digits {candidate.classes.tolist()} and "
                f"{baseline.classes.tolist()}, probabilities by up to {difference:.1e}."
            )
        largest = max(largest, difference)
    return largest
