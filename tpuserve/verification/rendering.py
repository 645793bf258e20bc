"""Formats the report of a verification as data for JSON and as tables for a terminal."""

import dataclasses
import math
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve.comparison import Comparison, format_difference
from tpuserve.verification.verification_report import Hazard, Report, Run, Timing

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}

# Attribute of `tpuserve.comparison.Comparison` → its key in the JSON output.
# An attribute that is not listed has its own name as its key.
_JSON_KEYS = {"num_out_of_tolerance": "beyond", "num_mismatched": "differing"}


def to_dict(report: Report) -> dict[str, Any]:
    """Return the report as a dict that can be written as JSON; NaN and infinity become None."""
    data: dict[str, Any] = _to_plain(dataclasses.asdict(report))
    data["passed"] = report.passed
    data["largest_absolute"] = _to_plain(report.largest_absolute)
    for signature, signature_data in zip(report.signatures, data["signatures"], strict=True):
        signature_data["passed"] = signature.passed
        for run, run_data in zip(signature.runs, signature_data["runs"], strict=True):
            run_data["passed"] = run.passed
            run_data["outputs"] = [
                {**_rename_keys(output_data), "passed": output.passed}
                for output, output_data in zip(run.outputs, run_data["outputs"], strict=True)
            ]
    return data


def print_tables(report: Report, console: Console | None = None) -> None:
    """Print the report as tables, in colour if the console supports colour."""
    console = console or Console()
    heading = f"{report.directory}: baseline {{serve}}, candidate {{serve, tpu}} through XLA"
    console.print(Text(heading, style="bold"), soft_wrap=True)
    console.print(_outputs_table(report))
    if any(signature.runs for signature in report.signatures):
        console.print()
        console.print(Text("Wall time of the first run, which compiles, and median of later runs"))
        console.print(_times_table(report))
    console.print()
    for text in _failures(report):
        console.print(Text(text, style=_STYLES["error"]), soft_wrap=True)
    if report.hazards:
        console.print(Text("On a TPU", style="bold"))
        for hazard in report.hazards:
            console.print(_hazard_line(hazard), soft_wrap=True)
    for note in report.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print(_verdict(report), soft_wrap=True)


def _rename_keys(data: dict[str, Any]) -> dict[str, Any]:
    return {_JSON_KEYS.get(name, name): value for name, value in data.items()}


def _to_plain(value: Any) -> Any:
    """Replace values that JSON cannot hold: paths by strings, NaN and infinity by None."""
    if isinstance(value, dict):
        return {name: _to_plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(member) for member in value]
    # Replace infinity, which JSON does not have. A difference is infinite if it is too large for
    # float64.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _outputs_table(report: Report) -> Table:
    """Build the table of differences between the metagraphs."""
    table = _new_table("signature", "batch", "output")
    for title in ("absolute", "relative", "differ"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for signature in report.signatures:
        name: str = signature.name
        if not signature.runs:
            table.add_row(Text(name), *[""] * 5, _outcome(signature.passed))
        for run in signature.runs:
            batch_size = _format_batch_size(run)
            for cells, passed in _output_rows(run):
                table.add_row(Text(name), batch_size, *cells, _outcome(passed))
                # Print a signature only in its first line, and a batch size only in the first
                # line of its run.
                name, batch_size = "", ""
    return table


def _times_table(report: Report) -> Table:
    """Build the table of wall times, with a line for each signature and batch size."""
    table = _new_table("signature", "batch", "inputs")
    for title in ("baseline", "later", "candidate", "later"):
        table.add_column(title, justify="right", no_wrap=True)
    for signature in report.signatures:
        name: str = signature.name
        for run in signature.runs:
            times = [*_format_timing(run.baseline), *_format_timing(run.candidate)]
            table.add_row(Text(name), _format_batch_size(run), run.source, *times)
            name = ""
    return table


def _new_table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title == "batch")
    return table


def _format_batch_size(run: Run) -> str:
    return "-" if run.batch_size is None else str(run.batch_size)


def _output_rows(run: Run) -> list[tuple[list[Any], bool]]:
    """Return the lines of the table of differences for one run, a line for each output."""
    if not run.outputs:
        return [([""] * 4, run.passed)]
    return [
        (
            [
                Text(output.name),
                format_difference(output.largest_absolute),
                format_difference(output.largest_relative),
                _format_mismatches(output),
            ],
            output.passed,
        )
        for output in run.outputs
    ]


def _failures(report: Report) -> list[str]:
    """Return a line of text for each signature, run or output that has failed."""
    lines = []
    for signature in report.signatures:
        if signature.failure:
            lines.append(f"{signature.name}: {signature.failure}")
        for run in signature.runs:
            subject = signature.name
            subject += "" if run.batch_size is None else f", batch size {run.batch_size}"
            if run.failure:
                lines.append(f"{subject}: {run.failure}")
            for output in run.outputs:
                if output.failure:
                    lines.append(f"{subject}, output {output.name}: {output.failure}")
                elif not output.passed:
                    lines.append(
                        f"{subject}, output {output.name}: {output.num_out_of_tolerance} of "
                        f"{math.prod(output.shape)} values are not equal within the tolerances"
                    )
    return lines


def _hazard_line(hazard: Hazard) -> Text:
    text = Text.assemble((f"{hazard.severity}: ", _STYLES[hazard.severity]), hazard.message)
    if hazard.node:
        function = f" in {hazard.function}" if hazard.function else ""
        text.append(f" [{hazard.op} {hazard.node}{function}]")
    if hazard.line:
        text.append(f" created at {hazard.line}")
    return text


def _verdict(report: Report) -> Text:
    """Return the last line that is printed: whether the verification passed, else why not."""
    if report.passed:
        largest = format_difference(report.largest_absolute)
        return Text(f"passed: largest absolute difference {largest}", style="bold green")
    failed = [signature.name for signature in report.signatures if not signature.passed]
    reasons = [f"signatures that failed: {', '.join(failed)}"] if failed else []
    errors = sum(hazard.severity == "error" for hazard in report.hazards)
    if errors:
        reasons.append(f"{errors} error{'s' if errors > 1 else ''} on a TPU")
    return Text(
        f"failed: {'; '.join(reasons) or 'no signature to compare'} (atol {report.atol:g}, "
        f"rtol {report.rtol:g})",
        style="bold red",
    )


def _outcome(passed: bool) -> Text:
    return Text("passed", style="green") if passed else Text("failed", style="bold red")


def _format_mismatches(output: Comparison) -> str:
    if output.num_mismatched is None:
        return "-"
    return f"{output.num_mismatched} of {output.compared}"


def _format_timing(timing: Timing | None) -> tuple[str, str]:
    """Return two table cells: the time of the first run, and the median time of later runs."""
    if timing is None:
        return "-", "-"
    median = "-" if timing.median is None else _format_seconds(timing.median)
    return _format_seconds(timing.first), median


def _format_seconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e6:.0f} us"
