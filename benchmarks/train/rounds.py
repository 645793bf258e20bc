"""Runs the sides of each case in turns, every one in a process of its own."""

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
from benchmarks.train.ratios import Measurements, Ratio, ratio

PROGRAM = Path(__file__).with_name("program.py")
LONGEST_SECONDS = 300


class RunFailed(Exception):
    """A process did not give its measurements; the message is what it said last."""


@dataclass
class Result:
    """What came of one case.

    Attributes:
      rounds: each side → measurements, for the sides that ran.
      failures: side → what it said when it failed; it is not run again.
    """

    case: Case
    rounds: list[dict[str, Measurements]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ratios(self) -> list[Ratio]:
        """The comparisons that have numbers."""
        found = (ratio(self.case.title, each, self.rounds) for each in self.case.comparisons)
        return [each for each in found if each is not None]

    def as_json(self) -> dict[str, Any]:
        """All numbers."""
        return {
            "case": self.case.title,
            "ratios": [
                {
                    "quantity": each.comparison.quantity,
                    "of": each.comparison.candidate,
                    "over": each.comparison.baseline,
                    "medians": [each.candidate, each.baseline],
                    "ratio": each.value,
                    "of_rounds": [each.lowest, each.highest],
                    "at_least" if each.comparison.at_least else "at_most": each.comparison.target,
                    "is_met": each.is_met,
                }
                for each in self.ratios
            ],
            "rounds": self.rounds,
            "failures": self.failures,
        }


def run(
    cases: Sequence[Case], count: int, seconds: float, original: Path | None, console: Console
) -> list[Result]:
    """Measures all cases, round by round, and shows how far it is.

    Args:
      cases: what to measure.
      count: how many rounds.
      seconds: how long each process is watched.
      original: the Python of the original's environment, if a case needs it.
      console: where progress is shown.
    """
    results = [Result(case) for case in cases]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        total = count * sum(len(case.sides) for case in cases)
        task = progress.add_task("", total=total)
        for number in range(count):
            for result in results:
                result.rounds.append({})
                sides = list(result.case.sides.items())
                # Whatever going first costs is shared out.
                for name, side in sides if number % 2 == 0 else reversed(sides):
                    told = f"round {number + 1} of {count}: {result.case.title}: {name}"
                    progress.update(task, description=told)
                    if not console.is_terminal:
                        console.print(told)
                    if name not in result.failures:
                        try:
                            result.rounds[-1][name] = _measure(result.case, side, seconds, original)
                        except RunFailed as error:
                            result.failures[name] = str(error)
                    progress.advance(task)
    return results


def _measure(case: Case, side: Side, seconds: float, original: Path | None) -> Measurements:
    assert original is not None or not side.is_original
    python = str(original) if side.is_original else sys.executable
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environment.pop("TPUSERVE_EMULATED_TPU", None)
    environment.update(side.environment)
    arguments = [*case.arguments, *side.arguments, f"--seconds={seconds}"]
    try:
        process = subprocess.run(
            [python, str(PROGRAM), *arguments, f"--started={time.monotonic()}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"not done after {LONGEST_SECONDS} s") from error
    if process.returncode != 0:
        said = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        raise RunFailed(said[-1])
    measured: Measurements = json.loads(process.stdout.splitlines()[-1])
    return measured
