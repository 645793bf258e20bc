"""A report as data for programs and as tables for people."""

import dataclasses
import math
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve.verification.report import Comparison, Hazard, Report, Run, Timing

# Attribute of a Comparison → its key in the JSON of `tpuserve verify --json`.
_KEYS = {"num_out_of_tolerance": "beyond", "num_mismatched": "differing"}
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def to_dict(report: Report) -> dict[str, Any]:
    """The report as plain dicts, lists, strings and numbers, all of which JSON has."""
    data: dict[str, Any] = _plain(dataclasses.asdict(report))
    data["passed"] = report.passed
    data["largest_absolute"] = _plain(report.largest_absolute)
    for signature, of_signature in zip(report.signatures, data["signatures"], strict=True):
        of_signature["passed"] = signature.passed
        for run, of_run in zip(signature.runs, of_signature["runs"], strict=True):
            of_run["passed"] = run.passed
            for output, of_output in zip(run.outputs, of_run["outputs"], strict=True):
                of_output["passed"] = output.passed
                for attribute, key in _KEYS.items():
                    of_output[key] = of_output.pop(attribute)
    return data


def print_tables(report: Report, console: Console | None = None) -> None:
    """Prints the report for people, in colour where the console has any."""
    console = console or Console()
    heading = f"{report.directory}: baseline {{serve}}, candidate {{serve, tpu}} through XLA"
    console.print(Text(heading, style="bold"), soft_wrap=True)
    console.print(_outputs_table(report))
    if any(each.runs for each in report.signatures):
        console.print()
        console.print(Text("Wall time: the first run, which compiles, then the median of others"))
        console.print(_times_table(report))
    console.print()
    for text, style in _failures(report):
        console.print(Text(text, style=style), soft_wrap=True)
    if report.hazards:
        console.print(Text("On a TPU", style="bold"))
        for each in report.hazards:
            console.print(_hazard(each), soft_wrap=True)
    for note in report.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print(_verdict(report), soft_wrap=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    # JSON has no infinity; it comes of a difference beyond the range of float64.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _outputs_table(report: Report) -> Table:
    table = _table("signature", "batch", "output")
    for title in ("absolute", "relative", "differ"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for signature in report.signatures:
        name: str = signature.name
        if not signature.runs:
            table.add_row(Text(name), *[""] * 5, _outcome(signature.passed))
        for run in signature.runs:
            batch = _batch(run)
            for cells, passed in _output_rows(run):
                table.add_row(Text(name), batch, *cells, _outcome(passed))
                # What stands above holds on.
                name, batch = "", ""
    return table


def _times_table(report: Report) -> Table:
    table = _table("signature", "batch", "inputs")
    for title in ("baseline", "then", "candidate", "then"):
        table.add_column(title, justify="right", no_wrap=True)
    for signature in report.signatures:
        name: str = signature.name
        for run in signature.runs:
            times = [*_times(run.baseline), *_times(run.candidate)]
            table.add_row(Text(name), _batch(run), run.source, *times)
            name = ""
    return table


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title == "batch")
    return table


def _batch(run: Run) -> str:
    return "-" if run.batch_size is None else str(run.batch_size)


def _output_rows(run: Run) -> list[tuple[list[Any], bool]]:
    if not run.outputs:
        return [([""] * 4, run.passed)]
    return [
        (
            [
                Text(each.name),
                _number(each.largest_absolute),
                _number(each.largest_relative),
                _differing(each),
            ],
            each.passed,
        )
        for each in run.outputs
    ]


def _failures(report: Report) -> list[tuple[str, str]]:
    found = []
    for signature in report.signatures:
        if signature.failure:
            found.append(f"{signature.name}: {signature.failure}")
        for run in signature.runs:
            where = signature.name
            where += "" if run.batch_size is None else f", batch size {run.batch_size}"
            if run.failure:
                found.append(f"{where}: {run.failure}")
            for each in run.outputs:
                if each.failure:
                    found.append(f"{where}, output {each.name}: {each.failure}")
                elif not each.passed:
                    found.append(
                        f"{where}, output {each.name}: {each.num_out_of_tolerance} of "
                        f"{math.prod(each.shape)} values are not equal within the tolerances"
                    )
    return [(text, _STYLES["error"]) for text in found]


def _hazard(each: Hazard) -> Text:
    text = Text.assemble((f"{each.severity}: ", _STYLES[each.severity]), each.message)
    if each.node:
        function = f" in {each.function}" if each.function else ""
        text.append(f" [{each.op} {each.node}{function}]")
    if each.line:
        text.append(f" made at {each.line}")
    return text


def _verdict(report: Report) -> Text:
    if report.passed:
        largest = _number(report.largest_absolute)
        return Text(f"passed: largest absolute difference {largest}", style="bold green")
    failed = [each.name for each in report.signatures if not each.passed]
    reasons = [f"signatures that failed: {', '.join(failed)}"] if failed else []
    errors = sum(each.severity == "error" for each in report.hazards)
    if errors:
        reasons.append(f"{errors} error{'s' if errors > 1 else ''} on a TPU")
    return Text(
        f"failed: {'; '.join(reasons) or 'no signature to compare'} (atol {report.atol:g}, "
        f"rtol {report.rtol:g})",
        style="bold red",
    )


def _outcome(passed: bool) -> Text:
    return Text("passed", style="green") if passed else Text("failed", style="bold red")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.1e}"


def _differing(each: Comparison) -> str:
    return "-" if each.num_mismatched is None else f"{each.num_mismatched} of {each.compared}"


def _times(timing: Timing | None) -> tuple[str, str]:
    """The first run's and the later ones'."""
    if timing is None:
        return "-", "-"
    return _duration(timing.first), "-" if timing.median is None else _duration(timing.median)


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e6:.0f} us"
