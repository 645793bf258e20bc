"""The report is true: names that it says work can be resolved with TensorFlow, others cannot."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.preloaded import process as preloaded_process
from tests.trainer.migration import samples
from trainer.compat.contrib_module_aliases import MODULE_ALIASES as FORMS
from trainer.compat.contrib_replacements import REPLACEMENTS
from trainer.compat.imports import estimator_aliases
from trainer.compat.source import api_names, estimator_names
from trainer.compat.source.api_names import Version
from trainer.migration import migration_report
from trainer.migration.findings import NameFinding
from trainer.migration.names import static_index

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "compat/programs"
MODULES = (
    "",
    "data.",
    "image.",
    "layers.",
    "losses.",
    "metrics.",
    "nn.",
    "summary.",
    "tpu.",
    "train.",
)


@dataclass(frozen=True)
class ReportAndErrors:
    """The report on programs, and the result of resolving their names in a process.

    Attributes:
      findings: the report's findings.
      errors: file → name as written → the error that the name raised, or None.
    """

    findings: list[NameFinding]
    errors: dict[str, dict[str, str | None]]

    def error(self, finding: NameFinding) -> str | None:
        return self.errors[finding.file][finding.written]


def everything(version: Version) -> str:
    """Return a program that uses each name of some modules that the report says works."""
    modules = [
        module for module in MODULES if not module or api_names.is_public_name(module[:-1], version)
    ]
    names = [
        f"{module}{name}"
        for module in modules
        for name in api_names.list_sibling_names(f"{module}x", version)
    ]
    namespaces = estimator_names.V1 if version == "v1" else estimator_names.V2
    names += [
        f"estimator.{namespace}.{name}"
        for namespace, inside in namespaces.items()
        for name in inside
    ]
    lines = ["import tensorflow as tf", *(f"tf.{name}" for name in names)]
    if version == "v1":
        lines += contrib()
    return "\n".join(lines).replace("..", ".")


def contrib() -> Iterator[str]:
    """Yield lines that use each name of tf.contrib and tensorflow_estimator in a table."""
    for module in static_index.public_names("trainer.compat.contrib") or ():
        for name in static_index.public_names(f"trainer.compat.contrib.{module}") or ():
            yield f"tf.contrib.{module}.{name}"
    # Leave out names that end in `.python`: whether they exist depends on earlier imports.
    yield from (replacement for replacement in REPLACEMENTS if not replacement.endswith(".python"))
    yield from (f"tf.estimator.{name}" for name in estimator_names.UNSUPPORTED)
    for number, form in enumerate(FORMS):
        yield f"import tensorflow.contrib.{form} as form_{number}"
    for form, names in estimator_aliases.MODULES.items():
        for name in names:
            yield f"from tensorflow_estimator.python.estimator.{form} import {name}"


def scripts(version: Version, directory: Path) -> Iterator[Path]:
    if version == "v1":
        yield samples.write_file(directory, "broken.py", samples.BROKEN)
        yield samples.write_file(directory, "bert_like.py", samples.BERT_LIKE)
        yield from PROGRAMS.rglob("*.py")
    else:
        yield samples.write_file(directory, "broken.py", samples.BROKEN_V2)
    # Yield this script last, because modules that it imports would exist for later scripts too.
    yield samples.write_file(directory, "everything.py", everything(version))


@pytest.fixture(scope="module", params=["v1", "v2"])
def resolution(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ReportAndErrors:
    directory = tmp_path_factory.mktemp(request.param)
    reports = [
        migration_report.analyze_program(script, follow_imports=False)
        for script in scripts(request.param, directory)
    ]
    findings = [
        finding
        for migration_report in reports
        if (migration_report.tf1 is not None) == (request.param == "v1")
        for finding in migration_report.findings
        if "(" not in finding.written
    ]
    names: dict[str, list[str]] = {}
    for finding in findings:
        names.setdefault(finding.file, []).append(finding.written)
    (directory / "names.json").write_text(json.dumps(names))
    flag = "--tf1" if request.param == "v1" else "--no-tf1"
    probe = [HERE / "name_resolution.py", directory / "names.json"]
    result = preloaded_process.run_preloaded(["-m", "tpuserve.run", flag, *map(str, probe)])
    assert result.returncode == 0, result.stderr
    return ReportAndErrors(findings, json.loads(result.stdout))


@pytest.mark.slow
def test_what_works_or_is_supplied_resolves(resolution: ReportAndErrors) -> None:
    promised = [finding for finding in resolution.findings if finding.kind.runs]
    assert len(promised) > 500
    assert not {
        finding.written: resolution.error(finding)
        for finding in promised
        if resolution.error(finding)
    }


def test_what_is_gone_or_not_known_raises(resolution: ReportAndErrors) -> None:
    refused = [finding for finding in resolution.findings if not finding.kind.runs]
    assert len(refused) >= 5
    assert not [finding.written for finding in refused if resolution.error(finding) is None]
