"""What is found out about one program."""

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuserve.errors import InvalidSetting
from trainer.compat.source import program, tf1_detection
from trainer.migration import findings
from trainer.migration.findings import Finding
from trainer.migration.names.classification import Kind
from trainer.migration.program import launch_command, package_script, sources
from trainer.migration.program.sources import Problem, Source


@dataclass(frozen=True)
class Report:
    """A program, and what becomes of what it names.

    Attributes:
      script: as it was asked for.
      files: that were read; the script is the first.
      findings: one for each name in each file, by file and line.
      problems: files that cannot be read.
      tf1: why the program gets TensorFlow 1's names and behaviour; None where it does not.
      command: what runs it; None where its script cannot be read.
    """

    script: str
    files: tuple[str, ...]
    findings: tuple[Finding, ...]
    problems: tuple[Problem, ...]
    tf1: str | None
    command: str | None

    @property
    def runs(self) -> bool:
        """Whether all that the program names is there."""
        return not self.problems and all(each.kind.runs for each in self.findings)

    def of_kind(self, kind: Kind) -> list[Finding]:
        """The findings of one kind."""
        return [each for each in self.findings if each.kind is kind]


def of(script: Path, *, followed: bool = True) -> Report:
    """What becomes of a program. It is read, not run.

    Args:
      script: its main file.
      followed: whether the modules of the program that it imports are read too.
    """
    part = package_script.of(sources.read(script, str(script)))
    root = () if part is None else (part.root,)
    directories: tuple[Path, ...] = (script.resolve().parent, *root)
    sign: object | None = None
    try:
        found = program.of_script(str(script))
    except InvalidSetting:
        # Its one file is a problem of its own, which the report has.
        found = None
    if found is not None:
        directories = (*found.directories, *root)
        found = dataclasses.replace(found, directories=directories)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sign = tf1_detection.sign(found)
    read = sources.program(script, directories if followed else ())
    by_name = sign is not None
    sign = sign or launch_command.v1_method(read)
    return Report(
        script=str(script),
        files=tuple(each.file for each in read),
        findings=tuple(
            each
            for source in read
            for each in findings.of(source, tf1=sign is not None, directories=directories)
        ),
        problems=tuple(each.problem for each in read if each.problem is not None),
        tf1=None if sign is None else str(sign),
        command=_command(read, says_tf1=sign is not None and not by_name),
    )


def _command(read: Sequence[Source], *, says_tf1: bool) -> str | None:
    return None if read[0].problem else launch_command.command(read, says_tf1=says_tf1)
