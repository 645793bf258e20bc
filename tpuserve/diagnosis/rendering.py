"""Formats the result of `tpuserve doctor` as data for JSON and as lines for a terminal."""

import dataclasses
from typing import Any

from rich.console import Console
from rich.text import Text

from tpuserve.diagnosis.doctor import Diagnosis
from tpuserve.diagnosis.request import Status

_STYLES = {Status.OK: "green", Status.NOTE: "cyan", Status.PROBLEM: "bold red"}
_STATUS_WIDTH, _CHECK_WIDTH = 9, 13
_INDENT = " " * (_STATUS_WIDTH + _CHECK_WIDTH)


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as a dict that can be written as JSON."""
    hardware = dataclasses.asdict(diagnosis.hardware)
    hardware["device_files"] = [str(path) for path in diagnosis.hardware.device_files]
    findings = [
        {**dataclasses.asdict(finding), "status": finding.status.value}
        for finding in diagnosis.findings
    ]
    all_reduce = diagnosis.all_reduce and dataclasses.asdict(diagnosis.all_reduce)
    return {
        "passed": diagnosis.passed,
        "tpu": hardware,
        "versions": dict(diagnosis.versions),
        "environment": dict(diagnosis.environment),
        "users": dataclasses.asdict(diagnosis.users),
        "all_reduce": all_reduce,
        "findings": findings,
    }


def print_findings(diagnosis: Diagnosis) -> None:
    """Print each finding and its advice, in colour if the terminal supports colour."""
    console = Console()
    for finding in diagnosis.findings:
        line = Text(finding.status.value.ljust(_STATUS_WIDTH), style=_STYLES[finding.status])
        line.append(finding.check.ljust(_CHECK_WIDTH) + finding.message, style="default")
        console.print(line, soft_wrap=True)
        for advice in finding.advice:
            console.print(Text(f"{_INDENT}{advice}."), soft_wrap=True)
    problems = sum(finding.status is Status.PROBLEM for finding in diagnosis.findings)
    verdict = f"{problems} problem{'s' * (problems > 1)}" if problems else "no problem"
    console.print(Text(f"{verdict} found"), soft_wrap=True)
