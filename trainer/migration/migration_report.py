"""Analyses a program, and reports the names that it uses and the command that runs it."""

import ast
import dataclasses
import importlib.util
import itertools
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuserve.errors import InvalidSetting
from trainer.compat.source import name_references, tf1_detection, user_program
from trainer.compat.source.paths import is_library_file
from trainer.compat.source.tf1_packages import EXCLUDED_PACKAGES
from trainer.migration import findings
from trainer.migration.findings import NameFinding
from trainer.migration.names.classification import NameStatus
from trainer.migration.program import launch_command, package_script, reachability, sources
from trainer.migration.program.sources import Problem, SourceFile


@dataclass(frozen=True)
class InstalledPackage:
    """An installed package that a program imports and that uses TensorFlow.

    Attributes:
      tf1: the reason why the package gets TensorFlow 1's names under `tpuserve run`; None if it
        does not get them.
      findings: the names that the package uses and that do not exist. For names in a function or
        an `if` statement, is_reached is False, because importing the package may not run the lines.
    """

    name: str
    tf1: str | None
    findings: tuple[NameFinding, ...]


def find_packages(
    source_files: Sequence[SourceFile],
    unreached: Sequence[Collection[int]],
    directories: Sequence[Path],
) -> tuple[InstalledPackage, ...]:
    """Find the installed packages that get TensorFlow 1's names or that use missing names.

    Only packages that the program imports are searched.
    """
    modules = sorted(
        {
            name
            for source, lines in zip(source_files, unreached, strict=True)
            for name in _imported_modules(source.tree, lines)
            if not _is_own(name, directories)
        }
    )
    packages: dict[str, list[Path]] = {}
    for module in modules:
        file = _find_file(module)
        if file is not None:
            packages.setdefault(module.partition(".")[0], []).append(file)
    examined = [_examine(package, files) for package, files in packages.items()]
    return tuple(package for package in examined if package.tf1 is not None or package.findings)


def _imported_modules(tree: ast.Module, unreached: Collection[int]) -> Iterator[str]:
    optional = name_references.find_optional_import_lines(tree)
    for node in ast.walk(tree):
        if getattr(node, "lineno", 0) in unreached or getattr(node, "lineno", 0) in optional:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_own(module: str, directories: Sequence[Path]) -> bool:
    root = module.partition(".")[0]
    places = [
        place
        for directory in directories
        for place in (directory / root, directory / f"{root}.py")
        if place.exists()
    ]
    return root in sys.stdlib_module_names or any(
        not is_library_file(place.resolve()) for place in places
    )


def _find_file(module: str) -> Path | None:
    """Return the source file of an installed module, without importing its package."""
    package, *parts = module.split(".")
    if package in EXCLUDED_PACKAGES:
        return None
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    origin = Path(spec.origin)
    if not spec.submodule_search_locations:
        return origin if _uses_tensorflow(origin) else None
    if not any(map(_uses_tensorflow, origin.parent.rglob("*.py"))):
        return None
    place = origin.parent.joinpath(*parts)
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return file
    return origin


def _uses_tensorflow(file: Path) -> bool:
    content = file.read_bytes()
    return b"import tensorflow" in content or b"from tensorflow" in content


def _examine(package: str, files: Sequence[Path]) -> InstalledPackage:
    """Find out whether a package gets TensorFlow 1's names, and which missing names it uses."""
    seen: set[Path] = set()
    evidence = [tf1_detection.find_package_evidence(package, file, seen) for file in files]
    tf1 = next((str(sign) for sign in evidence if sign is not None), None)
    root = next((parent for parent in files[0].parents if parent.name == package), None)
    place = files[0].parent if root is None else root.parent
    read = {
        source.path.resolve(): source
        for file in files
        for source in sources.read_program(
            file, () if root is None else (place,), within=root and root.resolve()
        )
    }
    problems = [
        finding
        for path, source in sorted(read.items())
        for finding in findings.find_references(
            SourceFile(os.path.relpath(path, place.resolve()), path, source.tree),
            tf1=tf1 is not None,
            directories=(place,),
            unreached_lines=_lines_that_may_not_run(source.tree),
        )
        if not finding.kind.runs
    ]
    return InstalledPackage(package, tf1, tuple(problems))


def _lines_that_may_not_run(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines inside functions and `if` statements."""
    bodies = [
        [*node.body, *getattr(node, "orelse", [])]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.If)
    ]
    return {
        line
        for statement in itertools.chain.from_iterable(bodies)
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }


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


def analyze_program(script: Path, *, follow_imports: bool = True) -> ProgramReport:
    """Analyse a program without running it."""
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
    unreached = reachability.find_unreached_lines(
        source_files, launch_command.find_unset_flags(source_files)
    )
    says_tf1 = evidence is not None and not is_found_by_name
    is_read = not source_files[0].problem
    return ProgramReport(
        script=str(script),
        files=tuple(source.file for source in source_files),
        findings=tuple(
            finding
            for source, lines in zip(source_files, unreached, strict=True)
            for finding in findings.find_references(
                source,
                tf1=evidence is not None,
                directories=directories,
                unreached_lines=lines,
            )
        ),
        problems=tuple(source.problem for source in source_files if source.problem is not None),
        tf1=None if evidence is None else str(evidence),
        command=launch_command.build_command(source_files, says_tf1=says_tf1) if is_read else None,
        cpu_command=(
            launch_command.build_cpu_command(source_files, says_tf1=says_tf1) if is_read else None
        ),
        packages=find_packages(source_files, unreached, directories),
    )
