"""Analyses a program, and reports the names that it uses and the command that runs it."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuserve.errors import InvalidSetting
from trainer.compat.source import tf1_detection, user_program
from trainer.migration import findings, installed_packages
from trainer.migration.findings import NameFinding
from trainer.migration.installed_packages import InstalledPackage
from trainer.migration.names.classification import NameStatus
from trainer.migration.program import (
    launch_command,
    package_script,
    program_flags,
    sources,
)
from trainer.migration.program.reachability import ProgramCode
from trainer.migration.program.sources import Problem


@dataclass(frozen=True)
class ProgramReport:
    """The result of the analysis of a program.

    Attributes:
      tf1: why the program gets TensorFlow 1's names and behaviour; None if the program gets the
        names and behaviour of TensorFlow 2.
      command: the shell command that runs the program; None if the script cannot be read.
      cpu_command: the command that runs the program on the CPU alone; None if `command` does, or if
        no flag of the program turns its TPU off.
      packages: the installed packages that the program imports, and that get the names of
        TensorFlow 1 or use names that no longer exist.
    """

    script: str
    files: tuple[str, ...]
    findings: tuple[NameFinding, ...]
    problems: tuple[Problem, ...]
    tf1: str | None
    command: str | None
    cpu_command: str | None = None
    packages: tuple[InstalledPackage, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether every file could be read, and every name in the lines that may run exists."""
        findings = [
            *self.findings,
            *(finding for package in self.packages for finding in package.findings),
        ]
        return not self.problems and not any(finding.stops for finding in findings)

    def findings_of_kind(self, kind: NameStatus) -> list[NameFinding]:
        """Return the findings of one kind, for example all names that tpuserve supplies.

        Findings in lines that the program does not run are left out.
        """
        return [finding for finding in self.findings if finding.kind is kind and finding.is_reached]

    @property
    def unreached_findings(self) -> list[NameFinding]:
        """The names that TensorFlow lacks, in lines that the program does not run."""
        return [finding for finding in self.findings if not finding.is_reached]


def analyze_program(
    script: Path, *, follow_imports: bool = True, arguments: Sequence[str] = ()
) -> ProgramReport:
    """Analyse a program without running it.

    Args:
      arguments: the command line of the program, such as ("--use_tpu=False",).
    """
    package = package_script.find_package(sources.read_source(script, str(script)))
    root = () if package is None else (package.root,)
    directories: tuple[Path, ...] = (script.resolve().parent, *root)
    evidence: object | None = None
    try:
        running_program = user_program.program_from_script(str(script))
    except InvalidSetting:
        # Continue if the script cannot be read, because the report lists the script as a problem.
        # Only the search for names of TensorFlow 1 is left out.
        running_program = None
    if running_program is not None:
        directories = (*running_program.directories, *root)
        running_program = dataclasses.replace(running_program, directories=directories)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evidence = tf1_detection.find_tf1_evidence(running_program)
    source_files = sources.read_program(script, directories if follow_imports else ())
    is_found_by_name = evidence is not None
    evidence = evidence or launch_command.find_v1_method(source_files)
    unset = launch_command.find_unset_flags(source_files)
    flags = program_flags.find_flag_values(source_files, unset, arguments)
    code = ProgramCode(source_files, flags)
    unreached = code.find_unreached(directories)
    replicas = code.count_replicas(unreached)
    says_tf1 = evidence is not None and not is_found_by_name

    def build(builder: Callable[..., str | None]) -> str | None:
        if source_files[0].problem:
            return None
        return builder(source_files, says_tf1=says_tf1, given=arguments, replicas=replicas)

    return ProgramReport(
        script=str(script),
        files=tuple(source.file for source in source_files),
        findings=tuple(
            finding
            for source, code in zip(source_files, unreached, strict=True)
            for finding in findings.find_references(
                source,
                tf1=evidence is not None,
                directories=directories,
                unreached=code,
            )
        ),
        problems=tuple(source.problem for source in source_files if source.problem is not None),
        tf1=None if evidence is None else str(evidence),
        command=build(launch_command.build_command),
        cpu_command=build(launch_command.build_cpu_command),
        packages=installed_packages.find_packages(source_files, unreached, directories),
    )
