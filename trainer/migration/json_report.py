"""Formats the reports on programs, which `tpuserve migrate` prints, as JSON.

The format is
{"version": 1, "runs": true, "programs": [PROGRAM, ...]}, where each PROGRAM is
{"script": "mnist.py", "files": ["mnist.py"], "runs": true,
 "tf1": "mnist.py:5 names tf.flags" or null, "command": "tpuserve run mnist.py" or null,
 "cpu_command": "tpuserve run mnist.py" or null,
 "counts": {"works": 40, "supplied": 9, "gone": 0, "unknown": 0, "missing": 0},
 "findings": [{"file": "mnist.py", "lines": [7, 30], "written": "tf.layers.dense",
               "name": "tensorflow.layers.dense", "kind": "works", "says": "",
               "is_reached": true}, ...],
 "packages": [{"name": "bert", "tf1": "bert/modeling.py:93 names tf.gfile.GFile" or null,
               "findings": [...]}, ...],
 "problems": [{"file": "old.py", "line": 3 or null, "says": "it is Python 2 (...)."}, ...]}
"version" changes when a field is removed or changes its meaning. New fields may appear without a
new version.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

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
