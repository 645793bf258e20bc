import dataclasses
import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.tpuserve.compilation.train_step import steps
from tpuserve.compilation import plot
from tpuserve.compilation.stats import CompileTarget
from tpuserve.compilation.train_step.report_table import print_report
from tpuserve.compilation.train_step.step import StepResult
from tpuserve.compilation.train_step.train_step_report import StepCompilation


def print_to_text(*compilations: tuple[CompileTarget, int, StepResult]) -> str:
    text = StringIO()
    print_report(steps.report(*compilations), Console(file=text, width=80))
    return text.getvalue()


def test_memory_of_a_chip_counts_variables_once_and_all_devices_of_the_chip() -> None:
    # A device needs 500 MB for arguments and 400 MB for outputs, which share 300 MB, and 900 MB of
    # temporary memory and 100 MB for the program.
    one = StepCompilation(steps.V5E, 64, steps.COMPILED)
    assert one.hbm_bytes == 1_600_000_000
    assert one.hbm_fraction == pytest.approx(0.1)
    two = StepCompilation(steps.TPU7X, 64, steps.COMPILED)
    assert two.hbm_bytes == 3_200_000_000


def test_rows_per_second_are_those_of_all_chips() -> None:
    compilation = StepCompilation(steps.TPU7X, 64, steps.COMPILED)
    assert compilation.replicas == 8
    assert compilation.estimated_rows_per_second == pytest.approx(32_000)
    assert compilation.estimated_rows_per_second_per_chip == pytest.approx(8_000)


def test_without_a_time_of_any_operation_there_is_no_estimate() -> None:
    untimed = dataclasses.replace(steps.STATS, seconds=0.0)
    compilation = StepCompilation(steps.V5E, 64, StepResult(untimed))
    assert compilation.estimated_rows_per_second is None
    assert " none " in print_to_text((steps.V5E, 64, StepResult(untimed)))


def test_a_row_has_the_figures_of_a_case() -> None:
    (row,) = [
        line.split()
        for line in print_to_text((steps.V5E, 64, steps.COMPILED)).splitlines()
        if line.startswith("v5e")
    ]
    assert row == ["v5e:2x2", "4", "64", ">2ms", "32k", "1.6G", "10.00%", "40M", "1"]


def test_an_error_is_printed_once_with_its_cases() -> None:
    refused = StepResult(error="XLA refuses Unique")
    text = print_to_text((steps.V5E, 64, refused), (steps.V5E, 128, refused))
    assert text.count("fails") == 2
    assert text.count("XLA refuses Unique") == 1
    assert "v5e:2x2 at batch size 64, v5e:2x2 at batch size 128: " in text


def test_json_has_what_the_table_has() -> None:
    report = steps.report((steps.V5E, 64, steps.COMPILED), (steps.V5E, 6, StepResult(error="no")))
    data = json.loads(json.dumps(report.to_dict()))
    assert not data["passed"]
    first, second = data["compilations"]
    assert (first["replicas"], first["reduced_bytes"], first["all_reduces"]) == (4, 40_000_000, 1)
    assert first["figures"]["seconds"] == 0.002
    assert (second["compiles"], second["error"], second["figures"]) == (False, "no", None)


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = steps.report((steps.V5E, 64, steps.COMPILED), (steps.V5E, 128, steps.COMPILED))
    plot.plot_compilations({"training step": report.compilations}, tmp_path / "plot.svg")
    assert "training step: estimated time" in (tmp_path / "plot.svg").read_text()
