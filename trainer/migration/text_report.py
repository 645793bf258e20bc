"""Prints reports on programs as text: a line for each name, and the command to run the program."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from trainer.migration.findings import NameFinding
from trainer.migration.migration_report import ProgramReport
from trainer.migration.names.classification import NameStatus

VERSION = 1


def format_reports(reports: Sequence[ProgramReport]) -> str:
    """Return the reports on programs as an indented JSON object."""
    return json.dumps(to_dict(reports), indent=2)


def to_dict(reports: Sequence[ProgramReport]) -> dict[str, Any]:
    """Convert the reports on programs to the dict that `format_reports` returns as JSON."""
    return {
        "version": VERSION,
        "runs": all(report.runs for report in reports),
        "programs": [_program_to_dict(report) for report in reports],
    }


def _program_to_dict(report: ProgramReport) -> dict[str, Any]:
    return {
        "script": report.script,
        "files": list(report.files),
        "runs": report.runs,
        "tf1": report.tf1,
        "command": report.command,
        "cpu_command": report.cpu_command,
        "counts": {kind.value: len(report.findings_of_kind(kind)) for kind in NameStatus},
        "findings": [asdict(finding) for finding in report.findings],
        "packages": [asdict(package) for package in report.packages],
        "problems": [asdict(problem) for problem in report.problems],
    }


_TITLES = {
    NameStatus.WORKS: ("Works as it is", "green"),
    NameStatus.SUPPLIED: ("Supplied by tpuserve", "cyan"),
    NameStatus.GONE: ("Gone", "red"),
    NameStatus.UNKNOWN: ("Not known", "magenta"),
    NameStatus.MISSING: ("Not installed", "yellow"),
}


def print_reports(reports: Sequence[ProgramReport]) -> None:
    """Print the reports on programs, in colours if the output is a terminal."""
    console = Console(highlight=False)
    for index, report in enumerate(reports):
        if index:
            console.print()
        for line in format_lines(report):
            console.print(line, soft_wrap=True)


def format_lines(report: ProgramReport) -> Iterator[Text]:
    """Yield the lines of the report on a program."""
    yield Text(_format_title(report), style="bold")
    for kind, (title, color) in _TITLES.items():
        findings = report.findings_of_kind(kind)
        if findings:
            noun = "name" if len(findings) == 1 else "names"
            yield Text()
            yield Text(f"{title}: {len(findings)} {noun}", color)
            yield from _format_table(findings)
    if report.unreached_findings:
        noun = "name" if len(report.unreached_findings) == 1 else "names"
        yield Text()
        yield Text(
            f"Gone or not known, and not reached: {len(report.unreached_findings)} {noun}", "dim"
        )
        yield from _format_table(report.unreached_findings)
    for package in report.packages:
        yield Text()
        yield Text(f"Installed package {package.name}", "cyan")
        if package.tf1 is not None:
            yield Text(f"  gets TensorFlow 1's names: {package.tf1}")
        if package.findings:
            yield from _format_table(package.findings)
    if report.problems:
        yield Text()
        yield Text(f"Not read: {len(report.problems)}", "red")
        for problem in report.problems:
            yield Text(f"  {problem}")
    yield Text()
    yield from _format_summary(report)


def _format_title(report: ProgramReport) -> str:
    others = len(report.files) - 1
    more = f" and {others} {'module' if others == 1 else 'modules'} beside it" if others else ""
    return f"{report.script}{more}"


def _format_table(findings: Sequence[NameFinding]) -> Iterator[Text]:
    places = [f"{finding.file}:{', '.join(map(str, finding.lines))}" for finding in findings]
    # Limit the width of the first column, which has the line numbers. Otherwise a name that very
    # many lines use would widen the column for all names.
    width = min(max(map(len, places)), 40)
    name_width = max(len(finding.written) for finding in findings)
    for place, finding in zip(places, findings, strict=True):
        says = _explanation(finding)
        name = finding.written.ljust(name_width) if says else finding.written
        yield Text.assemble(
            "  ", (place.ljust(width), "dim"), "  ", name, f"  {says}" if says else ""
        )


def _explanation(finding: NameFinding) -> str:
    if finding.kind is NameStatus.SUPPLIED and finding.says:
        return f"is {finding.says}"
    return finding.says


def _format_summary(report: ProgramReport) -> Iterator[Text]:
    if report.tf1:
        yield Text(f"The program gets TensorFlow 1's names and behaviour: {report.tf1}.")
    if report.command is None:
        return
    in_packages = [finding for package in report.packages for finding in package.findings]
    findings = [*report.findings, *in_packages]
    stops = len([finding for finding in findings if finding.stops]) + len(report.problems)
    if stops:
        yield Text(f"{stops} of these must be fixed before the program runs. Then run it with")
    else:
        yield Text("Run it with")
    yield Text(f"  {report.command}", style="bold")
    if report.cpu_command is not None:
        yield Text("or on the CPU alone with")
        yield Text(f"  {report.cpu_command}", style="bold")
