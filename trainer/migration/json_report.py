"""Reports as JSON.

{"version": 1, "runs": true, "programs": [PROGRAM, ...]}, and a PROGRAM is
{"script": "mnist.py", "files": ["mnist.py"], "runs": true,
 "tf1": "mnist.py:5 names tf.flags" or null, "command": "tpuserve run mnist.py" or null,
 "counts": {"works": 40, "supplied": 9, "gone": 0, "unknown": 0, "missing": 0},
 "findings": [{"file": "mnist.py", "lines": [7, 30], "written": "tf.layers.dense",
               "name": "tensorflow.layers.dense", "kind": "works", "says": ""}, ...],
 "problems": [{"file": "old.py", "line": 3 or null, "says": "it is Python 2 (...)."}, ...]}
"version" changes where a field goes or changes its meaning; new fields may come without.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from trainer.migration.names.classification import Kind
from trainer.migration.report import Report

VERSION = 1


def text(reports: Sequence[Report]) -> str:
    """All reports as one JSON object, indented."""
    return json.dumps(as_data(reports), indent=2)


def as_data(reports: Sequence[Report]) -> dict[str, Any]:
    """All reports as values that JSON has."""
    return {
        "version": VERSION,
        "runs": all(each.runs for each in reports),
        "programs": [_program(each) for each in reports],
    }


def _program(report: Report) -> dict[str, Any]:
    return {
        "script": report.script,
        "files": list(report.files),
        "runs": report.runs,
        "tf1": report.tf1,
        "command": report.command,
        "counts": {kind.value: len(report.of_kind(kind)) for kind in Kind},
        "findings": [asdict(each) for each in report.findings],
        "problems": [asdict(each) for each in report.problems],
    }
