"""Runs the sides of each case in turn; every run has a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.train.cases import Case, Side
from benchmarks.train.ratios import Measurements, Ratio, compute_ratio

PROGRAM = "benchmarks.train.program"
_ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 300


class RunFailed(Exception):
    """A process failed. The message is the last line of its standard error."""


@dataclass
class Result:
    """The results of a case.

    Attributes:
      case: The case.
      rounds: Side → measurements, for each round. Failed sides are missing.
      failures: Side → error message. A failed side does not run again.
    """

    case: Case
    rounds: list[dict[str, Measurements]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ratios(self) -> list[Ratio]:
        """The ratios of all comparisons whose two sides were measured."""
        ratios = (
            compute_ratio(self.case.title, comparison, self.rounds)
            for comparison in self.case.comparisons
        )
        return [ratio for ratio in ratios if ratio is not None]

    def as_json(self) -> dict[str, Any]:
        """Return all measurements and ratios as a JSON object."""
        return {
            "case": self.case.title,
            "ratios": [
                {
                    "quantity": ratio.comparison.quantity,
                    "of": ratio.comparison.candidate,
                    "over": ratio.comparison.baseline,
                    "medians": [ratio.candidate, ratio.baseline],
                    "ratio": ratio.value,
                    "of_rounds": [ratio.lowest, ratio.highest],
                    "at_least" if ratio.comparison.at_least else "at_most": ratio.comparison.target,
                    "is_met": ratio.is_met,
                }
                for ratio in self.ratios
            ],
            "rounds": self.rounds,
            "failures": self.failures,
        }


def measure_cases(
    cases: Sequence[Case], round_count: int, seconds: float, original: Path | None, console: Console
) -> list[Result]:
    """Measure all cases in rounds, and show the progress.

    Args:
      cases: The cases.
      round_count: The number of rounds.
      seconds: The measured time of each process, in seconds.
      original: The Python executable with TensorFlow 2.15, or None if no case needs it.
      console: The console of the progress bar.

    Returns:
      A result for each case.
    """
    results = [Result(case) for case in cases]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        total = round_count * sum(len(case.sides) for case in cases)
        task = progress.add_task("", total=total)
        for number in range(round_count):
            for result in results:
                result.rounds.append({})
                sides = list(result.case.sides.items())
                # The order changes with each round, so that no side always runs first.
                for name, side in sides if number % 2 == 0 else reversed(sides):
                    description = (
                        f"round {number + 1} of {round_count}: {result.case.title}: {name}"
                    )
                    progress.update(task, description=description)
                    if not console.is_terminal:
                        console.print(description)
                    if name not in result.failures:
                        try:
                            measured = _measure_side(result.case, side, seconds, original)
                            result.rounds[-1][name] = measured
                        except RunFailed as error:
                            result.failures[name] = str(error)
                    progress.advance(task)
    return results


def _measure_side(case: Case, side: Side, seconds: float, original: Path | None) -> Measurements:
    """Run the program of a case on a side.

    Raises:
      RunFailed: The program failed or exceeded the time limit.
    """
    assert original is not None or not side.is_original
    python = str(original) if side.is_original else sys.executable
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environment.pop("TPUSERVE_EMULATED_TPU", None)
    environment.update(side.environment)
    arguments = [*case.arguments, *side.arguments, f"--seconds={seconds}"]
    try:
        process = subprocess.run(
            [python, "-m", PROGRAM, *arguments, f"--started={time.monotonic()}"],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"exceeded the time limit of {TIMEOUT_SECONDS} s") from error
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        raise RunFailed(lines[-1])
    measured: Measurements = json.loads(process.stdout.splitlines()[-1])
    return measured
