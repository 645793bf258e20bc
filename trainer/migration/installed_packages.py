"""Finds the names that are missing in the installed packages that a program imports."""

import ast
import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuserve.files.disk_cache import DiskCache, find_cache_directory
from trainer.compat.source import name_references, tf1_detection
from trainer.compat.source.paths import OUR_PACKAGE_DIRECTORIES, is_library_file
from trainer.compat.source.tf1_packages import EXCLUDED_PACKAGES
from trainer.migration import findings
from trainer.migration.findings import NameFinding
from trainer.migration.names.classification import NameStatus
from trainer.migration.program import sources
from trainer.migration.program.reachability import UnreachedCode
from trainer.migration.program.sources import SourceFile


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
    tf1: str | None = None
    findings: tuple[NameFinding, ...] = ()


def find_packages(
    source_files: Sequence[SourceFile],
    unreached: Sequence[UnreachedCode],
    directories: Sequence[Path],
) -> tuple[InstalledPackage, ...]:
    """Find the installed packages that get TensorFlow 1's names or that use missing names.

    Only the modules that the program imports, directly or indirectly, are read. What is found in a
    package is kept on disk for later calls.
    """
    modules: dict[str, set[str]] = {}
    for source, code in zip(source_files, unreached, strict=True):
        for module in _imported_modules(source.tree, code.lines):
            modules.setdefault(module.partition(".")[0], set()).add(module)
    environment = _describe_environment()
    examined = [
        _find_or_examine(package, origin, sorted(names), environment)
        for package, names in sorted(modules.items())
        if package not in EXCLUDED_PACKAGES and not _is_own(package, directories)
        if (origin := _find_origin(package)) is not None
    ]
    return tuple(package for package in examined if package.tf1 is not None or package.findings)


def _imported_modules(tree: ast.Module, unreached: Collection[int]) -> Iterator[str]:
    left_out = {*unreached, *name_references.find_optional_import_lines(tree)}
    for node in name_references.walk(tree):
        if getattr(node, "lineno", 0) in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_own(package: str, directories: Sequence[Path]) -> bool:
    places = [
        place
        for directory in directories
        for place in (directory / package, directory / f"{package}.py")
        if place.exists()
    ]
    return package in sys.stdlib_module_names or any(
        not is_library_file(place.resolve()) for place in places
    )


def _find_origin(package: str) -> Path | None:
    """Return the source file of an installed package or module, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin).resolve()


def _find_or_examine(
    package: str, origin: Path, modules: Sequence[str], environment: Sequence[str]
) -> InstalledPackage:
    """Return what an earlier call has found in a package; examine it if there is no such call."""
    if not is_library_file(origin):
        return _examine(package, origin, modules)
    cache = DiskCache(find_cache_directory() / "migrate", ".json", _MAX_CACHE_BYTES)
    content = [str(origin), str(origin.stat().st_mtime_ns), *modules, *environment]
    key = hashlib.sha256("\n".join(content).encode()).hexdigest()
    # A file that is missing or damaged counts as none.
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return _from_dict(json.loads(cache.find(key) or b""))
    examined = _examine(package, origin, modules)
    with contextlib.suppress(OSError):
        cache.store(key, json.dumps(dataclasses.asdict(examined)).encode())
    return examined


_MAX_CACHE_BYTES = 1 << 26


def _from_dict(data: dict[str, Any]) -> InstalledPackage:
    found = [
        NameFinding(**{**each, "lines": tuple(each["lines"]), "kind": NameStatus(each["kind"])})
        for each in data.pop("findings")
    ]
    return InstalledPackage(**data, findings=tuple(found))


def _describe_environment() -> list[str]:
    """Return what decides, beside a package itself, which of its names are missing."""
    # Whether an import of a package fails depends on which other packages are installed.
    distributions = {
        entry.name
        for place in map(Path, sys.path)
        for pattern in ("*.dist-info", "*.egg-info")
        for entry in place.glob(pattern)
    }
    times = [
        file.stat().st_mtime_ns
        for directory in OUR_PACKAGE_DIRECTORIES
        for file in directory.rglob("*.py")
    ]
    return [sys.version, str(max(times)), *sorted(distributions)]


def _examine(package: str, origin: Path, modules: Sequence[str]) -> InstalledPackage:
    """Find out whether a package gets TensorFlow 1's names, and which missing names it uses."""
    is_single_file = origin.name != "__init__.py"
    place = origin.parent if is_single_file else origin.parent.parent
    if not any(map(_uses_tensorflow, [origin] if is_single_file else origin.parent.rglob("*.py"))):
        return InstalledPackage(package)
    files = {
        file: None for module in modules for file in sources.module_files(place, module.split("."))
    }
    seen: set[Path] = set()
    evidence = [tf1_detection.find_package_evidence(package, file, seen) for file in files]
    tf1 = next((str(sign) for sign in evidence if sign is not None), None)
    problems = [
        finding
        for source in sources.read_package(list(files), place, _lines_that_may_not_run)
        for finding in findings.find_references(
            source,
            tf1=tf1 is not None,
            directories=(place,),
            unreached=UnreachedCode(_lines_that_may_not_run(source.tree)),
        )
        if not finding.kind.runs
    ]
    return InstalledPackage(package, tf1, tuple(problems))


def _uses_tensorflow(file: Path) -> bool:
    content = file.read_bytes()
    return b"import tensorflow" in content or b"from tensorflow" in content


def _lines_that_may_not_run(tree: ast.Module) -> set[int]:
    """Return the lines that importing a module may not run, and those of optional imports."""
    return {
        line
        for node in name_references.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.If)
        for statement in [*node.body, *getattr(node, "orelse", [])]
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    } | name_references.find_optional_import_lines(tree)
