"""A report as JSON and as tables."""

import io
import json
from pathlib import Path

from rich.console import Console

from tpuserve.verification import (
    Comparison,
    Hazard,
    Report,
    Run,
    Timing,
    VerifiedSignature,
    rendering,
)

FINE = Comparison("y", "float32", (8, 3), 2.5e-7, 1e-6, 0, 0, 8)
OFF = Comparison("z", "float32", (8,), 0.5, float("inf"), 3)
TIMES = Timing(0.25, 0.00004)

REPORT = Report(
    Path("/models/half/1"),
    1e-5,
    1e-5,
    0,
    (
        VerifiedSignature("good", (Run(8, "generated", (FINE,), TIMES, TIMES),)),
        VerifiedSignature("off", (Run(8, "file", (FINE, OFF), TIMES, TIMES),)),
        VerifiedSignature("gone", (), "the candidate {serve, tpu} has no such signature"),
    ),
    (Hazard("uncompilable", "error", "XLA cannot compile AsString.", "AsString", "n", "f", "m:3"),),
    ("x was converted",),
)


def tables_text(report: Report, width: int = 140) -> str:
    out = io.StringIO()
    rendering.print_tables(report, Console(file=out, width=width))
    return out.getvalue()


def test_json_has_all_figures_and_no_infinity() -> None:
    data = json.loads(json.dumps(rendering.to_dict(REPORT), allow_nan=False))
    assert [signature["passed"] for signature in data["signatures"]] == [True, False, False]
    run = data["signatures"][1]["runs"][0]
    assert [output["passed"] for output in run["outputs"]] == [True, False]
    assert run["outputs"][1]["largest_relative"] is None
    assert run["baseline"] == {"first": 0.25, "median": 0.00004}
    assert data["hazards"][0]["line"] == "m:3"
    assert (data["passed"], data["largest_absolute"]) == (False, 0.5)


def rows(first: str) -> list[str]:
    """Return the lines of both tables that begin with `first`, on a terminal of 80 columns."""
    lines = [line.split() for line in tables_text(REPORT, width=80).splitlines()]
    return [" ".join(line) for line in lines if line[:1] == [first]]


def test_the_tables_have_differences_and_times() -> None:
    assert rows("good") == [
        "good 8 y 2.5e-07 1.0e-06 0 of 8 passed",
        "good 8 generated 250 ms 40 us 250 ms 40 us",
    ]


def test_failures_are_printed_below_the_tables() -> None:
    text = tables_text(REPORT)
    assert "off, batch size 8, output z: 3 of 8 values are not equal" in text
    assert "gone: the candidate {serve, tpu} has no such signature" in text
    assert "error: XLA cannot compile AsString. [AsString n in f] created at m:3" in text
    assert text.splitlines()[-1].startswith("failed: signatures that failed: off, gone; 1 error")


def test_a_report_without_failures_passes() -> None:
    good = Report(REPORT.directory, 1e-5, 1e-5, 0, REPORT.signatures[:1])
    assert tables_text(good).splitlines()[-1] == "passed: largest absolute difference 2.5e-07"
